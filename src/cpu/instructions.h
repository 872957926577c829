// The instruction sets that src/cpu was compiled for (G2_CPU_ARCH).
#pragma once

namespace g2::cpu {

extern const bool kCompiledForAvx2;
extern const bool kCompiledForAvx512;

}  // namespace g2::cpu
