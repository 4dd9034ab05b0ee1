// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's engine over NCCL, in a source file of nvcc's: see compiled.hpp.

#include <shardkit/detail/core_begins.inc>

#include <shardkit/backend/nccl/compiled_kernels.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>

#include <shardkit/detail/show_macros.inc>

template struct shardkit::compiled::CoreLaunches<shardkit::compiled::AllPrecisions>;
template struct shardkit::compiled::UpdateLaunches<shardkit::compiled::AllPrecisions, shardkit::StateFormat::full>;
