// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <shardkit/backend/host/range_updates.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_update.hpp>
#include <shardkit/optim/rule_functions.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/sharded/host_conversions.hpp>

namespace shardkit::test {

/// A rule of one update.
template <class Only, class Of, std::size_t States, class Storage>
struct RuleOfUpdate {
    struct None {};
    template <class A>
    using Update = std::conditional_t<std::is_same_v<A, Of>, Only, None>;
    using StateStorage = Storage;
    static constexpr std::array<std::string_view, States> state_names{};
};

/// Makes an update as an optimizer's on the host, whose element types are values.
template <class Master, class Gather, class Gradient, std::size_t StateCount, class Storage, class Update>
void update_on_host(std::span<const rules::UpdateRange> ranges, const Update* updates, const std::uint32_t* skip,
                    const rules::UpdateSpans<Master, Gather, Gradient, StateCount, Storage>& spans) {
    using A = Arithmetic<Master>;
    // A master that is gathered itself is the only one.
    constexpr bool kept = !std::is_same_v<Master, Gather>;
    static constexpr auto conversions = detail::host_conversions<
        host::detail::RangeUpdates,
        detail::FourTypes<Gather, Gradient, Gradient, std::conditional_t<kept, Master, A>>>();
    struct alignas(detail::KnownRuleUpdate<Update>) Aligned : detail::AnyRuleUpdate {};
    std::vector<Aligned> table;
    for (const rules::UpdateRange& range : ranges) {
        while (table.size() <= range.update) {
            const Update& next = updates[table.size()];
            std::memcpy(table.emplace_back().bytes, &next, sizeof next);
        }
    }
    detail::AnyUpdateWork work{
        .rule = &detail::updates_of<RuleOfUpdate<Update, A, StateCount, Storage>, host::detail::RangeUpdates>,
        .conversions = &conversions,
        .load_gradients = conversions.load_sums,
        .ranges = ranges,
        .updates = table.data(),
        .skip = skip,
        .count = spans.master.size(),
        .arithmetic = element_type_of<A>,
        .updated = element_type_of<Master>,
        .gathers = element_type_of<Gather>,
        .gradients = element_type_of<Gradient>,
        .codes = detail::code_sizes<Gather>,
        .rounds = spans.draws.steps != nullptr,
        .master = spans.master.data(),
        .gathered = kept ? spans.gathered.data() : nullptr,
        .gradient = spans.gradient.data(),
        .rest = spans.rest.data(),
        .scales = spans.scales.data(),
        .seed = spans.draws.seed,
        .state_seed = spans.state_draws.seed,
        .steps = spans.draws.steps != nullptr ? spans.draws.steps : spans.state_draws.steps,
        .format = Storage::format,
        .state_count = StateCount,
    };
    if constexpr (StateCount > 0) {
        for (std::size_t s = 0; s < StateCount; ++s) {
            if constexpr (Storage::format == StateFormat::block8) {
                work.states[s] = {reinterpret_cast<std::byte*>(spans.states[s].codes.data()),
                                  spans.states[s].scales.data()};
            } else {
                work.states[s] = {reinterpret_cast<std::byte*>(spans.states[s].data()), nullptr};
            }
        }
    }
    work();
}

}  // namespace shardkit::test
