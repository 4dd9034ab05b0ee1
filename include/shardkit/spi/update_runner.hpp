// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

// What an optimizer keeps of its groups, and what runs their updates.

#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/optimizer_groups.hpp>
#include <shardkit/optim/update_runner.hpp>
#include <shardkit/optim/update_table.hpp>
