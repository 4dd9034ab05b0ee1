// SPDX-License-Identifier: Apache-2.0
#pragma once

// The kernels of the core's optimizers with states in 16 and 8 bits, in a source file of nvcc's: see compiled.hpp.

#include <shardkit/detail/core_begins.inc>

#include <shardkit/backend/nccl/compiled_kernels.hpp>

#include <shardkit/detail/show_macros.inc>

template struct shardkit::compiled::UpdateLaunches<shardkit::compiled::AllPrecisions, shardkit::StateFormat::bf16,
                                                   shardkit::StateFormat::block8>;
