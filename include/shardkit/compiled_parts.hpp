// SPDX-License-Identifier: Apache-2.0
#pragma once

// The core's parts behind plan.hpp, muon.hpp, adafactor.hpp, moving_average.hpp and verify.hpp: see compiled.hpp.

#include <shardkit/compiled/part_begins.inc>

#include <shardkit/average/moving_average.hpp>
#include <shardkit/compiled/core.hpp>
#include <shardkit/compiled/define_optimizers.hpp>
#include <shardkit/factored/adafactor.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/plan/plan_model.hpp>
#include <shardkit/verify/verify.hpp>

#include <shardkit/detail/show_macros.inc>
