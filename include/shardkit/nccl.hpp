// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// The engine whose ranks are GPUs, one each, over NCCL. It needs <nccl.h> and the CUDA runtime; the kernels of a step
// are launched from files that nvcc compiles (docs/cuda_engine.md). In the compiled form it needs neither, and the
// program links compiled_nccl.hpp's core.

#include <shardkit/backend/nccl/launcher.hpp>
#include <shardkit/backend/nccl/meeting.hpp>
#include <shardkit/backend/nccl/native.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/unique_id.hpp>
#include <shardkit/backend/nccl/world.hpp>

#include <shardkit/detail/show_macros.inc>
