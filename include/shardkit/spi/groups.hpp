// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

// What a part knows of the groups of a model: spi::groups(model) and spi::group(layer) give them.

#include <shardkit/memory/stored_elements.hpp>
#include <shardkit/sharded/buffer_digests.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_members.hpp>
#include <shardkit/sharded/group_statements.hpp>
#include <shardkit/sharded/held_memory.hpp>
#include <shardkit/sharded/torn_values.hpp>
#include <shardkit/sharded/whole_tensor.hpp>
#include <shardkit/step/group_list.hpp>
#include <shardkit/step/model.hpp>

namespace shardkit::spi {

/// One group of a model on one rank, whatever its types: its geometry, communicators, buffers, and the state of its
/// step.
using Group = detail::Group;
/// An item of the list of a group's memory, Group::held(), and of what an optimizer holds of it.
using HeldMemory = detail::HeldMemory;

}  // namespace shardkit::spi
