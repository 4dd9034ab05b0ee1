// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thrust/version.h>

// Included before any other header of Thrust, so that an old version fails with this message first.
static_assert(THRUST_VERSION >= 300000,
              "shardkit needs CCCL 3.0 or later: the CUDA toolkit 13 has it, or put CCCL's include folders first");
