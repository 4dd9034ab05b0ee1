// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thrust/version.h>

// Read before any other header of CUB and Thrust, so that an old one says this before it says what it lacks.
static_assert(THRUST_VERSION >= 300000,
              "shardkit needs CCCL 3.0 or later: the CUDA toolkit 13 has it, or put CCCL's include folders first");
