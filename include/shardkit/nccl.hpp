// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The engine whose ranks are GPUs, one each, over NCCL. It needs <nccl.h> and the CUDA runtime; the kernels of a step
// are launched from files that nvcc compiles (docs/cuda_engine.md).

#ifdef SHARDKIT_COMPILED
#include <shardkit/backend/nccl/compiled_world.hpp>
#else
#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
