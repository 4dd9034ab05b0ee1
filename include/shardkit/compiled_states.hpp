// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's optimizers with states in 16 and 8 bits: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/compiled/define_optimizers.hpp>

#include <shardkit/detail/show_macros.inc>

template struct shardkit::compiled::CoreRules<shardkit::StateFormat::bf16>;
template struct shardkit::compiled::CoreRules<shardkit::StateFormat::block8>;
