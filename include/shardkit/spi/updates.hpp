// SPDX-License-Identifier: Apache-2.0
#pragma once

// The update of a group as values: a rule's options and functions, and the elements that they are given.

#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/sharded/host_conversions.hpp>
