// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/policy/policy_values.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The memory of one state.
class StateMemory {
  public:
    /// @param arithmetic  in which updates compute
    StateMemory(Rank& rank, const StateKind& kind, ElementType arithmetic, const GroupGeometry& group,
                std::string_view name)
        : name_(name),
          count_(group.updated.size()),
          format_(kind.format),
          type_(stored_type(format_, arithmetic)),
          elements_(group_buffer<std::uint8_t>(rank, group.path, name, count_ * size_of(type_), group.offloads())) {
        if (format_ == StateFormat::block8) {
            scales_ = group_buffer<float>(rank, group.path, name, Block8::blocks(count_), group.offloads());
        }
    }
    std::string_view name() const noexcept { return name_; }
    AnyStateSpan span() const noexcept {
        return {reinterpret_cast<std::byte*>(elements_.span().data()), scales_.span().data()};
    }
    /// Appends it, for the parameters of which `only` has not 0; of blocks the codes, and behind them the scales.
    void list(const GroupGeometry& group, bool square, const List<char>& only, List<HeldMemory>& held) const {
        const auto add = [&](const StoredElements& values, std::size_t unit) {
            held.push_back({Role::states, name_, values, group.updated, group.table.updated, {}, unit, square, only});
        };
        add({elements_.span(), type_}, 1);
        if (format_ == StateFormat::block8) { add(scales_.span(), Block8::block); }
    }

  private:
    std::string_view name_;
    std::size_t count_;
    StateFormat format_;
    ElementType type_;
    HostBuffer<std::uint8_t> elements_;
    HostBuffer<float> scales_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
