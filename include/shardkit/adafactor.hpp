// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Adafactor, and other optimizers with states of another shape than their parameters.

#include <shardkit/factored/adafactor.hpp>
#include <shardkit/factored/factored_plan.hpp>

#include <shardkit/detail/show_macros.inc>
