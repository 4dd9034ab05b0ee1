// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Patterns of communication timed as the library's benchmarks are: beside shardkit.hpp, for programs that measure.

#include <shardkit/measure/figure.hpp>
#include <shardkit/measure/in_turns.hpp>
#include <shardkit/measure/pattern.hpp>
#include <shardkit/measure/verbs.hpp>

#include <shardkit/detail/show_macros.inc>
