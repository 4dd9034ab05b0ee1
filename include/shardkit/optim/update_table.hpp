// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <shardkit/core/checked.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/kernels/update.hpp>
#include <shardkit/optim/any_rule.hpp>
#include <shardkit/optim/begin_step.hpp>
#include <shardkit/policy/offload.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/rank/launches.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/sharded/group_buffer.hpp>

namespace shardkit::detail SHARDKIT_CHECKED_BUILD {

/// The progress of an optimizer's groups and their updates, in the engine's memory.
class UpdateTable {
  public:
    /// Takes a group in, with its different hyper-parameters, the optimizer's own first.
    /// @return the group's number; its updates are those from size(), as it was before, on
    std::size_t add(const List<ParameterHypers>& hypers) {
        listed_groups_.push_back({size(), static_cast<std::uint32_t>(hypers.size()), hypers.front().progress.steps});
        listed_hypers_.append(hypers.data(), hypers.data() + hypers.size());
        return listed_groups_.size() - 1;
    }
    /// Of all updates.
    std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(listed_hypers_.size()); }
    /// Says that some groups are updated on the host.
    void keep_host_copy() noexcept { on_host_ = true; }

    /// Says whether a group takes part in the step that begins.
    void take(std::size_t group, bool taken) noexcept { taken_[group] = taken ? 1 : 0; }
    /// Steps that a group has taken. Waits for the compute stream.
    std::uint64_t steps(std::size_t group) const { return groups_.read(group).steps; }
    /// The same number, where the engine has it: of the step that has begun.
    const std::uint64_t* engine_steps(std::size_t group) const noexcept { return &(groups_.data() + group)->steps; }
    /// How far those of a group are that have its hypers number `choice`. Waits for the compute stream.
    AnyProgress progress(std::size_t group, std::size_t choice = 0) const {
        return hypers_.read(listed_groups_[group].first + choice).progress;
    }
    /// Order:   in the compute stream's
    void set_progress(std::size_t group, std::size_t choice, const AnyProgress& progress) {
        const std::size_t at = listed_groups_[group].first + choice;
        ParameterHypers hypers = hypers_.read(at);
        hypers.progress = progress;
        hypers_.write(hypers, at);
        if (choice > 0) { return; }
        GroupUpdates whole = groups_.read(group);
        whole.steps = progress.steps;
        groups_.write(whole, group);
    }

    /// Once all groups are in, and before anything below.
    [[gnu::cold]] void upload(Rank& rank) {
        groups_ = {rank, listed_groups_.data(), listed_groups_.size()};
        hypers_ = {rank, listed_hypers_.data(), size()};
        taken_ = List<char>(listed_groups_.size());
        updates_ = {rank, List<AnyRuleUpdate>(size()).data(), size()};
        if (on_host_) {
            host_ = group_buffer<std::uint8_t>(rank, "optimizer", "numbers of updates on the host",
                                               behind(skip_at(), sizeof(std::uint32_t)), /*offloaded=*/true);
        }
    }

    /// Counts the step of the groups that take part, and makes their updates: one launch for each run of neighbours.
    /// The first one takes `first`, and does it before.
    void begin(const Stream& stream, const StepScalars* scalars, const ChosenOptions* options,
               std::optional<BeginStep>& first) {
        const auto is_taken = [&](std::size_t group) { return taken_[group] != 0; };
        for_each_run(0, taken_.size(), is_taken, [&](std::size_t begin, std::size_t end) {
            begin_run(stream, first ? &*first : nullptr, end - begin,
                      {scalars, options, groups_.data() + begin, hypers_.data(), updates_.data()});
            first.reset();
        });
    }

    /// Does the same for one group alone.
    void begin_alone(std::size_t group, const Stream& stream, const StepScalars* scalars,
                     const ChosenOptions* options) {
        begin_run(stream, nullptr, 1, {scalars, options, groups_.data() + group, hypers_.data(), updates_.data()});
    }

    const AnyRuleUpdate* updates() const noexcept { return updates_.data(); }

    /// Copies what the groups' updates on the host read, `skip` too, to the host, in the copy stream.
    void copy_to_host(Rank& rank, const std::uint32_t* skip) const {
        const auto copy = [&](auto from, std::size_t at) {
            rank.world()
                .copy_stream(engine::LinkWay::to_host)
                .give_copy(from.data(), host_.span().data() + at, from.size_bytes());
        };
        copy(groups_.span(), 0);
        copy(updates_.span(), updates_at());
        copy(std::span(skip, 1), skip_at());
    }
    /// The same on the host.
    const std::uint64_t* host_steps(std::size_t group) const noexcept {
        return &(on_host<GroupUpdates>(0) + group)->steps;
    }
    const AnyRuleUpdate* host_updates() const noexcept { return on_host<AnyRuleUpdate>(updates_at()); }
    const std::uint32_t* host_skip() const noexcept { return on_host<std::uint32_t>(skip_at()); }

  private:
    /// Begins some groups, behind `first` unless that is null.
    void begin_run(const Stream& stream, const BeginStep* first, std::size_t groups, const StepTables& work) {
        if (stream.on_device()) { return listed_hypers_.front().progress.rule->begin(stream, first, groups, work); }
        // Of the host's, where no kernel of a device's is made of it.
        if (first != nullptr) { stream.submit(*first); }
        stream.submit(EachIndex<BeginUpdates<BeginsByFunctions>>{groups, {work}});
    }
    /// Places in the host's copy, each aligned to 128 bytes.
    static constexpr std::size_t behind(std::size_t at, std::size_t bytes) noexcept {
        return (at + bytes + 127) / 128 * 128;
    }
    std::size_t updates_at() const noexcept { return behind(0, groups_.size() * sizeof(GroupUpdates)); }
    std::size_t skip_at() const noexcept { return behind(updates_at(), updates_.size() * sizeof(AnyRuleUpdate)); }
    template <class T>
    const T* on_host(std::size_t at) const noexcept {
        return reinterpret_cast<const T*>(host_.span().data() + at);
    }

    List<GroupUpdates> listed_groups_;
    List<ParameterHypers> listed_hypers_;
    List<char> taken_;
    EngineTable<GroupUpdates> groups_;
    EngineTable<ParameterHypers> hypers_;
    bool on_host_ = false;
    // Groups, updates and skip, where some groups are updated there. Freed behind the updates, which wait for it.
    HostBuffer<std::uint8_t> host_;
    EngineTable<AnyRuleUpdate> updates_;
};

}  // namespace shardkit::detail SHARDKIT_CHECKED_BUILD
