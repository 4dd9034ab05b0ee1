// SPDX-License-Identifier: Apache-2.0
#pragma once

// Resharding, which reshard.hpp declares: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/reshard/reshard.hpp>

#include <shardkit/detail/show_macros.inc>
