// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <shardkit/optim/step_work.hpp>
#include <shardkit/optim/update.hpp>
#include <shardkit/rank/context.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launch_table.hpp>

namespace shardkit::detail {

/// The progress and the updates of an optimizer's groups in arithmetic A, in the engine's memory. `Rule`: an
/// OptimizerRule.
template <class Rule, class Engine, class A>
class UpdateTable {
  public:
    using Update = typename Rule::template Update<A>;
    using Progress = GroupProgress<typename Rule::Progress>;

    /// Takes a group in, with its different hyper-parameters.
    /// @return the group's number; its updates are those from size(), as it was before, on
    std::size_t add(std::span<const ParameterHypers> hypers) {
        listed_groups_.push_back({{}, size(), static_cast<std::uint32_t>(hypers.size())});
        listed_hypers_.insert(listed_hypers_.end(), hypers.begin(), hypers.end());
        return listed_groups_.size() - 1;
    }
    /// Of all updates.
    std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(listed_hypers_.size()); }
    /// Once all groups are in, and before anything below.
    void upload(Context<Engine>& context) {
        groups_ = {context, std::span<const Progress>(listed_groups_)};
        hypers_ = {context, std::span<const ParameterHypers>(listed_hypers_)};
        updates_ = {context, std::span<const Update>(std::vector<Update>(listed_hypers_.size()))};
        taken_.assign(listed_groups_.size(), 0);
    }

    /// Says whether a group takes part in the step that begins.
    void take(std::size_t group, bool taken) noexcept { taken_[group] = taken ? 1 : 0; }
    /// Counts the step of the groups that take part, and makes their updates: one launch for each run of neighbours.
    void begin(const typename Engine::Stream& stream, const StepScalars* scalars,
               const typename Rule::Options* options) {
        const auto is_taken = [&](std::size_t group) { return taken_[group] != 0; };
        for_each_run(0, taken_.size(), is_taken, [&](std::size_t begin, std::size_t end) {
            run_each<Engine>(
                stream, end - begin,
                BeginUpdates<Rule, A>{scalars, options, groups_.data() + begin, hypers_.data(), updates_.data()});
        });
    }

    const Update* updates() const noexcept { return updates_.data(); }
    /// Steps that a group has taken. Waits for the compute stream.
    std::uint64_t steps(std::size_t group) const { return progress(group).steps; }
    /// How far a group is. Waits for the compute stream.
    typename Rule::Progress progress(std::size_t group) const { return groups_.read(group).progress; }
    /// Order:   in the compute stream's
    void set_progress(std::size_t group, const typename Rule::Progress& progress) {
        Progress whole = groups_.read(group);
        whole.progress = progress;
        groups_.write(whole, group);
    }

  private:
    std::vector<Progress> listed_groups_;
    std::vector<ParameterHypers> listed_hypers_;
    std::vector<char> taken_;
    EngineTable<Engine, Progress> groups_;
    EngineTable<Engine, ParameterHypers> hypers_;
    EngineTable<Engine, Update> updates_;
};

}  // namespace shardkit::detail
