// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's checkpoints: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>

#include <shardkit/detail/show_macros.inc>
