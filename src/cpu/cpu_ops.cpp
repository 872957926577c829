#include "cpu/cpu_ops.h"

#include "cpu/memory.h"

namespace g2::cpu {

CpuOps::CpuOps(base::ThreadPool& pool) : pool_(pool), memory_(std::make_unique<Memory>()) {}
CpuOps::~CpuOps() = default;

}  // namespace g2::cpu
