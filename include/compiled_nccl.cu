// SPDX-License-Identifier: Apache-2.0
// The compiled core over NCCL: see shardkit/compiled.hpp.
#include <shardkit/compiled_nccl.hpp>
#include <shardkit/compiled_nccl_states.hpp>
