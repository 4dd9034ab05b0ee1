// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/hide_macros.inc>

// Faults on purpose, for tests of trainers: beside shardkit.hpp, so that no trainer pays for them.

#include <shardkit/testing/fault_plan.hpp>
#include <shardkit/testing/faulty.hpp>

#include <shardkit/detail/show_macros.inc>
