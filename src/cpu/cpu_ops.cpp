#include "cpu/cpu_ops.h"

#include "cpu/instructions.h"
#include "cpu/memory.h"

namespace g2::cpu {

#if defined(__AVX2__)
const bool kCompiledForAvx2 = true;
#else
const bool kCompiledForAvx2 = false;
#endif
#if defined(__AVX512F__)
const bool kCompiledForAvx512 = true;
#else
const bool kCompiledForAvx512 = false;
#endif

CpuOps::CpuOps(base::ThreadPool& pool) : pool_(pool), memory_(std::make_unique<Memory>()) {}
CpuOps::~CpuOps() = default;

}  // namespace g2::cpu
