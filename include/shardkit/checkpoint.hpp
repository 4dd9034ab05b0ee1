// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Checkpoints and safetensors files. They are not part of shardkit.hpp, so that only files that save or load compile
// them.

#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/file_calls.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/safetensors_file.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/stored_as.hpp>

#include <shardkit/detail/show_macros.inc>
