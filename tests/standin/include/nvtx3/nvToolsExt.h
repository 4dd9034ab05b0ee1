// SPDX-License-Identifier: Apache-2.0
// What the library uses of NVTX 3, which is the header alone: the names and types are those of the CUDA toolkit 13; a
// thread's calls are written down while it asks for them (standin::record_ranges).
#pragma once

#include <cstdint>

using nvtxRangeId_t = std::uint64_t;

int nvtxRangePushA(const char* message);
int nvtxRangePop();
nvtxRangeId_t nvtxRangeStartA(const char* message);
void nvtxRangeEnd(nvtxRangeId_t id);
