// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/optim/factored_rule.hpp>
#include <shardkit/optim/group_optimizer.hpp>
#include <shardkit/optim/group_progress.hpp>
#include <shardkit/optim/listed_group.hpp>
#include <shardkit/optim/param_group.hpp>
#include <shardkit/optim/update_table.hpp>
#include <shardkit/policy/precision.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group.hpp>
#include <shardkit/sharded/held_memory.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// What an optimizer keeps of its groups. Compiled once for all models.
class OptimizerGroups {
  public:
    using Group = GroupOptimizer;
    using State = detail::Group;

    virtual ~OptimizerGroups() = default;
    OptimizerGroups(OptimizerGroups&&) = delete;

    /// One more group, in the model's order.
    void add(State& state, const AnyOptions& options, std::span<const ParamGroup> param_groups,
             SourceLocation where) {
        Group& group = groups_.emplace_back(state.rank(), state.geometry(), options, param_groups, where);
        group.choose(state.rank(), state.geometry(), param_groups, nullptr, table());
        numbers_[state.identity()] = groups_.size() - 1;
        for (std::size_t p = 0; p < group.updated().size(); ++p) {
            if (group.updates(p)) { state.torn().end_states(p); }
        }
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
    virtual void prepare(Rank& rank, const std::uint32_t* skip, SourceLocation where) = 0;
    /// Begins a walk over the model's groups, all and in order.
    void rewind() noexcept { next_ = 0; }
    /// Begins such a walk to list them, in place of those that were listed before.
    virtual void start() noexcept { rewind(); }
    void list(State& state) {
        Group& group = next();
        if (!group.number()) { return; }
        const bool taken = !state.step().skipped();
        table().take(*group.number(), taken);
        list(group, state, table().engine_steps(*group.number()), taken);
    }
    /// One step of those that take part in it, on the compute stream, behind `first` if it is still there. Collective
    /// over the world unless groups are updated by themselves.
    virtual void run(Rank& rank, const StepScalars* scalars, const ChosenOptions* options,
                     std::optional<BeginStep>& first, SourceLocation where) = 0;
    /// The bytes of this rank's buffers beside states.
    virtual std::size_t bytes() const noexcept = 0;
    /// Appends each state of a group that has a shape of its own.
    virtual void list_own_shapes(const State& state, List<HeldMemory>& held) = 0;

    /// What it keeps of one of its groups.
    Group& group_of(const State& state) { return groups_[numbers_.at(state.identity())]; }
    /// The next group in a walk over the model.
    Group& next() noexcept { return groups_[next_++]; }
    UpdateTable& table() noexcept { return table_; }

  protected:
    OptimizerGroups() = default;
    /// `taken`: whether the group takes part in this step, which the engine knows as `steps`.
    virtual void list(Group& group, State& state, const std::uint64_t* steps, bool taken) = 0;

    bool captured_ = false;

  private:
    List<Group> groups_;
    UpdateTable table_;                             // its end waits for the kernels that use what the groups have
    std::map<std::uint64_t, std::size_t> numbers_;  // of them, by identity
    std::size_t next_ = 0;                          // of the groups, in a walk
};

struct NoLaunches {
    explicit NoLaunches(const auto&... /*arguments*/) {}
};
/// The same with launches: `InDouble` of groups that are updated in fp64, where others have launches of their own.
template <class Launches, class InDouble>
class LaunchedGroups final : public OptimizerGroups {
  public:
    /// @param arguments  of each launches' constructor
    template <class... Arguments>
    explicit LaunchedGroups(const Arguments&... arguments) : launches_(arguments...), in_double_(arguments...) {}

    /// One step of one group alone, on the compute stream.
    void run_alone(State& state, const StepScalars* scalars, const ChosenOptions* options) {
        Group& group = group_of(state);
        if (!group.number()) { return; }
        const auto stream = state.rank().compute_stream();
        captured_ = captured_ || stream.capture() != 0;
        table().begin_alone(*group.number(), stream, scalars, options);
        const TrainedGroup trained{&group, &state, table().engine_steps(*group.number()), true};
        launches_.run_one(trained, state.rank(), table(), &scalars->skip);
    }

  private:
    static constexpr bool alone = requires { &Launches::run_one; };

    /// f(launches) for those of all groups.
    void for_each(const auto& f) {
        f(launches_);
        if constexpr (!std::is_empty_v<InDouble>) { f(in_double_); }
    }
    void prepare(Rank& rank, const std::uint32_t* skip, SourceLocation where) override {
        for_each([&](auto& launches) { launches.prepare(rank, table(), skip, where); });
    }
    void start() noexcept override {
        OptimizerGroups::start();
        for_each([](auto& launches) { launches.start(); });
    }
    void list(Group& group, State& state, const std::uint64_t* steps, bool taken) override {
        const TrainedGroup trained{&group, &state, steps, taken};
        with_launches(state, [&](auto& launches) { launches.list({trained}); });
    }
    void run(Rank& rank, const StepScalars* scalars, const ChosenOptions* options, std::optional<BeginStep>& first,
             SourceLocation where) override {
        captured_ = captured_ || rank.compute_stream().capture() != 0;
        table().begin(rank.compute_stream(), scalars, options, first);
        for_each([&](auto& launches) { launches.run(rank, table(), &scalars->skip, where); });
    }
    std::size_t bytes() const noexcept override {
        std::size_t bytes = 0;
        if constexpr (!alone) {
            const_cast<LaunchedGroups&>(*this).for_each([&](auto& launches) { bytes += launches.bytes(); });
        }
        return bytes;
    }
    void list_own_shapes(const State& state, List<HeldMemory>& held) override {
        if constexpr (!alone) {
            with_launches(state, [&](auto& launches) {
                launches.list_own_shapes(state.geometry(), state.rank().rank(), held);
            });
        }
    }

    /// f(launches) with those that a group's updates are among.
    template <class F>
    void with_launches(const State& state, const F& f) {
        if constexpr (!std::is_empty_v<InDouble>) {
            if (state.geometry().arithmetic() == ElementType::fp64) { return f(in_double_); }
        }
        f(launches_);
    }

    // Their ends wait for the kernels that use what the groups have.
    Launches launches_;
    [[no_unique_address]] InDouble in_double_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
