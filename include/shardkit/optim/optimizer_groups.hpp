// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/update_runner.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// What an optimizer keeps of its groups. Compiled once for all models.
class OptimizerGroups : NotCopied {
  public:
    using Group = GroupOptimizer;
    using State = detail::Group;

    /// `in_double`: of groups that are updated in fp64, where others have a runner of their own.
    OptimizerGroups(Owned<spi::UpdateRunner>&& runner, Owned<spi::UpdateRunner>&& in_double)
        : runner_(std::move(runner)), in_double_(std::move(in_double)) {}

    /// One more group, in the model's order.
    const Group& add(State& state, const AnyOptions& options, std::span<const ParamGroup> param_groups,
                     SourceLocation where) {
        Group& group = groups_.emplace_back(state.rank(), state.geometry(), options, param_groups, where);
        group.choose(state.rank(), state.geometry(), param_groups, nullptr, table());
        numbers_[state.identity()] = groups_.size() - 1;
        for (std::size_t p = 0; p < group.updated().size(); ++p) {
            if (group.updates(p)) { state.torn().end_states(p); }
        }
        return group;
    }
    /// Begins the table anew, into which `choose` takes all groups again, in order, each as far as `progress` says.
    void restart() {
        table_ = UpdateTable{};
        start();
    }
    /// Returns whether it updates the group.
    bool choose(State& state, std::span<const ParamGroup> param_groups, const GroupProgress* progress) {
        Group& group = next();
        group.choose(state.rank(), state.geometry(), param_groups, progress, table());
        return group.number().has_value();
    }
    /// Steps that a group of that identity has taken; 0 where it has no such group. Waits for the compute stream.
    std::uint64_t steps(std::uint64_t identity) const {
        const auto found = numbers_.find(identity);
        if (found == numbers_.end()) { return 0; }
        const auto number = groups_[found->second].number();
        return number ? table_.steps(*number) : 0;
    }
    /// Whether a graph has captured a step, whose work refers to the tables.
    bool captured() const noexcept { return captured_; }
    /// Takes the engine's memory of the tables, once there are all groups.
    void upload(Rank& rank) { table_.upload(rank); }
    /// Makes the launches of all groups, which are listed; `skip`: in the engine's memory, the same in all calls.
    void prepare(Rank& rank, const std::uint32_t* skip, SourceLocation where) {
        for_each_runner([&](auto& runner) { runner.prepare(rank, table(), skip, where); });
    }
    /// Begins a walk over the model's groups, all and in order.
    void rewind() noexcept { next_ = 0; }
    /// Begins such a walk to list them, in place of those that were listed before.
    void start() noexcept {
        rewind();
        for_each_runner([](auto& runner) { runner.start(); });
    }
    void list(State& state) {
        Group& group = next();
        if (!group.number()) { return; }
        const bool taken = !state.step().skipped();
        table().take(*group.number(), taken);
        runner_of(state).list({&group, &state, table().engine_steps(*group.number()), taken});
    }
    /// One step of those that take part in it, on the compute stream, behind `first` if it is still there. Collective
    /// over the world unless groups are updated by themselves.
    void run(Rank& rank, const StepScalars* scalars, const ChosenOptions* options, std::optional<BeginStep>& first,
             SourceLocation where) {
        captured_ = captured_ || rank.compute_stream().capture() != 0;
        table().begin(rank.compute_stream(), scalars, options, first);
        for_each_runner([&](auto& runner) { runner.run(rank, table(), &scalars->skip, where); });
    }
    /// One step of one group alone, on the compute stream.
    void run_alone(State& state, const StepScalars* scalars, const ChosenOptions* options) {
        Group& group = group_of(state);
        if (!group.number()) { return; }
        const auto stream = state.rank().compute_stream();
        captured_ = captured_ || stream.capture() != 0;
        table().begin_alone(*group.number(), stream, scalars, options);
        runner_of(state).run_one({&group, &state, table().engine_steps(*group.number()), true}, state.rank(), table(),
                                 &scalars->skip);
    }
    /// The bytes of this rank's buffers beside states.
    std::size_t bytes() const noexcept {
        std::size_t bytes = 0;
        for_each_runner([&](const auto& runner) { bytes += runner.bytes(); });
        return bytes;
    }
    /// Appends each state of a group that has a shape of its own.
    void list_own_shapes(const State& state, List<HeldMemory>& held) const {
        runner_of(state).list_own_shapes(state.geometry(), state.rank().rank(), held);
    }

    /// What it keeps of one of its groups.
    Group& group_of(const State& state) { return groups_[numbers_.at(state.identity())]; }
    /// The next group in a walk over the model.
    Group& next() noexcept { return groups_[next_++]; }
    UpdateTable& table() noexcept { return table_; }

  private:
    void for_each_runner(const auto& f) const {
        f(*runner_);
        if (in_double_) { f(*in_double_); }
    }
    /// The one that a group's updates are among.
    spi::UpdateRunner& runner_of(const State& state) const {
        return in_double_ && state.geometry().arithmetic() == ElementType::fp64 ? *in_double_ : *runner_;
    }

    bool captured_ = false;
    List<Group> groups_;
    UpdateTable table_;                             // its end waits for the kernels that use what the groups have
    std::map<std::uint64_t, std::size_t> numbers_;  // of them, by identity
    std::size_t next_ = 0;                          // of the groups, in a walk
    // Their ends wait for the kernels that use what the groups have.
    Owned<spi::UpdateRunner> runner_;
    Owned<spi::UpdateRunner> in_double_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
