// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// A state brought to another mesh without a file. It is not part of shardkit.hpp, so that only files that reshard
// compile it.
#include <shardkit/reshard/reshard.hpp>

#include <shardkit/detail/show_macros.inc>
