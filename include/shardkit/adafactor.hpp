// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Adafactor, an optimizer with states of another shape than its parameters.

#include <shardkit/factored/adafactor.hpp>
#ifndef SHARDKIT_COMPILED
#include <shardkit/factored/factored_optimizer.hpp>
#include <shardkit/factored/factored_plan.hpp>
#endif

#include <shardkit/detail/show_macros.inc>
