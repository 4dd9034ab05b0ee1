// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <shardkit/core/block8.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/state_kind.hpp>
#include <shardkit/optim/state_storage.hpp>
#include <shardkit/policy/placement.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit::detail {

/// The memory of one state.
template <class Engine>
class StateMemory {
  public:
    /// @param arithmetic  in which updates compute
    StateMemory(Context<Engine>& context, const StateKind& kind, ElementType arithmetic, const GroupGeometry& group,
                std::string_view name)
        : name_(name),
          count_(group.updated.size()),
          format_(kind.format),
          blocks_(kind.blocks),
          type_(format_ == StateFormat::full   ? arithmetic
                : format_ == StateFormat::bf16 ? ElementType::bf16
                                               : ElementType::uint8),
          elements_(context, group.offloads(), group.path, name, count_ * size_of(type_)) {
        if (blocks_ != nullptr) { scales_ = {context, group.offloads(), group.path, name, Block8::blocks(count_)}; }
    }
    std::string_view name() const noexcept { return name_; }
    AnyStateSpan span() const noexcept {
        return {reinterpret_cast<std::byte*>(elements_.span().data()), scales_.span().data(), count_, format_};
    }
    /// Appends what the rank holds of it for the parameters of which `only` has not 0; of blocks the codes, and
    /// behind them the scales.
    void list(const GroupGeometry& group, std::vector<ShardInfo>& shards, const List<char>& only) const {
        list_shards(group, name_, group.table.updated, {elements_.span(), type_}, group.updated.begin, shards, &only);
        if (blocks_ == nullptr) { return; }
        const GroupGeometry blocks = blocks_->geometry(group);
        list_shards(blocks, concat(name_, " scales"), group.table.updated, scales_.span(), blocks.updated.begin,
                    shards, &only);
    }

  private:
    std::string_view name_;
    std::size_t count_;
    StateFormat format_;
    const BlockStates* blocks_;
    ElementType type_;
    OffloadedBuffer<Engine, std::uint8_t> elements_{};
    OffloadedBuffer<Engine, float> scales_{};
};

}  // namespace shardkit::detail
