// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/sharded/copy_captures.hpp>
#include <shardkit/sharded/group.hpp>

namespace shardkit::detail SHARDKIT_BUILD {

/// The updates of groups of any element types with a rule that is a value, one group behind the other.
template <class Engine>
class AnyLaunches {
    using Stream = typename Engine::Stream;

  public:
    using Table = UpdateTable<AnyRule, Engine, float>;
    using Listed = TrainedGroup<AnyRule, Engine>;

    void start() noexcept { listed_.clear(); }
    void list(const Listed& each) { listed_.push_back(each); }
    void prepare(Context<Engine>& /*context*/, const Table& /*table*/, const std::uint32_t* /*skip*/,
                 SourceLocation /*where*/) {}
    void run_one(const Listed& each, Context<Engine>& context, const Table& table, const std::uint32_t* skip) {
        const Stream stream = context.compute_stream();
        run(each, stream, capture_of(stream), table, skip);
    }
    void run(Context<Engine>& context, const Table& table, const std::uint32_t* skip, SourceLocation /*where*/) {
        const Stream stream = context.compute_stream();
        const auto capture = capture_of(stream);
        for (const Listed& each : listed_) {
            if (each.taken) { run(each, stream, capture, table, skip); }
        }
    }

  private:
    static void run(const Listed& each, const Stream& stream, unsigned long long capture, const Table& table,
                    const std::uint32_t* skip) {
        each.state->gradients().wait();
        Engine::Kernels::run_once(stream, work(each, table.updates(), skip));
        each.state->parameters().end_update(stream.record(), capture);
    }
    static AnyUpdateWork work(const Listed& each, const AnyRuleUpdate* updates, const std::uint32_t* skip) {
        auto& parameters = each.state->parameters();
        const GroupGeometry& geometry = each.state->geometry();
        const bool keeps_master = geometry.keeps_master();
        const StoredElements gathered = parameters.gather_source();
        const StoredElements master = keeps_master ? parameters.master() : gathered;
        const StoredElements gradient = each.group->gradient(*each.state);
        const auto& rounding = geometry.stochastic_rounding;
        return {
            .rule = each.group->beginning().rule,
            .ranges = each.group->ranges(),
            .updates = updates,
            .skip = skip,
            .count = master.size(),
            .updated = master.type(),
            .gathers = gathered.type(),
            .gradients = gradient.type(),
            .codes = geometry.sizes.codes,
            .rounds = rounding.has_value(),
            .master = master.data(),
            .gathered = keeps_master ? gathered.data() : nullptr,
            .gradient = gradient.data(),
            .rest = parameters.rest().data(),
            .scales = keeps_master ? parameters.updated_scales().data() : nullptr,
            .seed = rounding ? rounding->seed : 0,
            .state_seed = each.group->state_seed(),
            .steps = each.steps,
            .states = each.group->state_spans(),
            .state_count = each.group->states_used(),
        };
    }

    List<Listed> listed_;
};

}  // namespace shardkit::detail SHARDKIT_BUILD
