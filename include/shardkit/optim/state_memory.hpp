// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/core/bf16.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/optim/state_storage.hpp>
#include <shardkit/policy/placement.hpp>
#include <shardkit/policy/state_format.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/blocks_of.hpp>
#include <shardkit/sharded/group_buffer.hpp>
#include <shardkit/sharded/group_geometry.hpp>
#include <shardkit/sharded/list_shards.hpp>

namespace shardkit::detail {

/// The memory of one state.
template <class Engine, class Storage, class A>
class StateMemory {
    using Element = std::conditional_t<Storage::format == StateFormat::full, A,
                                       std::conditional_t<Storage::format == StateFormat::bf16, bf16, std::uint8_t>>;
    static constexpr bool coded = Storage::format == StateFormat::block8;

  public:
    StateMemory() = default;
    StateMemory(Context<Engine>& context, bool offloaded, std::string_view path, std::string_view name,
                std::size_t count)
        : elements_(context, offloaded, path, name, count) {
        if constexpr (coded) { scales_ = {context, offloaded, path, name, Block8::blocks(count)}; }
    }
    StateSpan<Storage, A> span() const noexcept {
        if constexpr (coded) {
            return {elements_.span(), scales_.span()};
        } else {
            return elements_.span();
        }
    }
    /// Its elements as they are in memory: codes, where it is in blocks.
    std::span<const Element> elements() const noexcept { return elements_.span(); }
    /// Appends what the rank holds of it for the parameters of which `only` has not 0; of blocks the codes, and
    /// behind them the scales.
    void list(const GroupGeometry& group, std::string_view name, std::vector<ShardInfo>& shards,
              const List<char>& only) const {
        list_shards(group, name, group.table.updated, elements_.span(), group.updated.begin, shards, &only);
        if constexpr (coded) {
            const GroupGeometry blocks = blocks_of(group);
            list_shards(blocks, concat(name, " scales"), group.table.updated, scales_.span(), blocks.updated.begin,
                        shards, &only);
        }
    }

  private:
    struct Nothing {};
    OffloadedBuffer<Engine, Element> elements_{};
    [[no_unique_address]] std::conditional_t<coded, OffloadedBuffer<Engine, float>, Nothing> scales_{};
};

}  // namespace shardkit::detail
