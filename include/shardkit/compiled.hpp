// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core of the compiled form. A program whose files define SHARDKIT_COMPILED before they include a header of
// shardkit, or are compiled with -DSHARDKIT_COMPILED, includes this one in one source file of its own, or links a
// library that has it:
//     #include <shardkit/compiled.hpp>
// In source files of their own, for who uses them: checkpoints are in compiled_checkpoint.hpp, states in 16 and 8
// bits in compiled_states.hpp, plans, Muon, Adafactor, averages and checks in compiled_parts.hpp, schedules in
// compiled_schedule.hpp, MPI in compiled_mpi.hpp. See docs/dependencies.md.

#ifdef SHARDKIT_CORE_PART
#include "compiled.hpp of shardkit is included behind a part of the core: include it first, or in a file of its own"
#endif
#include <shardkit/detail/core_begins.inc>

#include <shardkit/compiled/define_core.hpp>
#include <shardkit/compiled/define_optimizers.hpp>

#include <shardkit/detail/show_macros.inc>

template struct shardkit::compiled::CoreRules<shardkit::StateFormat::full>;
