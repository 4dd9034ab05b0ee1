// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/find_numbers.hpp>
#include <shardkit/checkpoint/load_options.hpp>
#include <shardkit/checkpoint/load_plan.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// One load on one rank.
class LoadRun {
  public:
    LoadRun(RankWorld& world, checkpoint::LoadOptions options, SourceLocation where)
        : world_(world),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          where_(where) {}

    /// Collective over the world. `open(calls)` gives the files.
    template <class Open, class State>
    checkpoint::LoadReport run(const Open& open, const State& state) {
        together(world_, where_, [&] {
            state_ = Access::capture(state, where_);
            files_ = std::make_unique<CheckpointFiles>(open(calls_));
            for (const auto& group : state_.groups) {
                group->require_idle("load", where_);
                group->begin_load(where_);
            }
            plan_.emplace(state_, *files_, options_, world_.rank() == 0, where_);
            if (options_.states) { Access::check_numbers(state, state_, where_); }
        });
        Fnv identity;
        files_->add_to(identity);
        identity.add(options_.states ? 1 : 0);
        identity.add(options_.subset ? 1 : 0);
        for (const Target& target : plan_->targets) {
            identity.add(target.tensor.name);
            identity.add(target.tensor.order.hash());
            identity.add(target.from->tensor.name);
        }
        for (const SavedScalar& scalar : state_.scalars) { identity.add(scalar.name); }
        for (const auto& [name, bytes] : state_.blobs) { identity.add(name); }
        require_same(world_, "load",
                     concat(files_->first_path().empty() ? "nothing" : files_->first_path(),
                            plan_->targets.empty() ? ""
                                                   : concat(", ", plan_->targets.size(), " tensors, first '",
                                                            plan_->targets.front().tensor.name, "'"),
                            options_.states ? "" : ", without states", options_.subset ? ", a subset" : ""),
                     identity.hash, where_);
        for (std::size_t t = plan_->targets.size(); t > 0; --t) {
            torn(plan_->targets[t - 1])
                .begin(plan_->targets[t - 1].tensor.parameter, kind(plan_->targets[t - 1]), "load", where_);
        }
        const Failure failure = Failure::first(world_, attempt([&] { read(); }), where_);
        // This follows a failure too, so that the same copies are stale on every rank.
        for (const auto& group : state_.groups) { group->end_load(); }
        failure.raise(where_);
        if (files_->verified()) { verify(); }
        // Values are torn until what counts them is theirs.
        if (options_.states) {
            together(world_, where_, [&] { Access::restore_numbers(state, state_, where_); });
        }
        for (const Target& target : plan_->targets) {
            torn(target).end(target.tensor.parameter, kind(target));
            if (stored_kind(target).role == Role::parameters) {
                state_.groups[target.tensor.group]->note_load(target.tensor.parameter);
            }
        }
        for (FindNumbers::Blob& blob : plan_->blobs) { *blob.to = std::move(blob.bytes); }
        plan_->report.step = files_->step();
        plan_->report.strings = files_->strings();
        return plan_->report;
    }

  private:
    using Target = LoadPlan::Target;

    TornValues& torn(const Target& target) const noexcept { return state_.groups[target.tensor.group]->torn(); }
    const StoredKind& stored_kind(const Target& target) const noexcept {
        return state_.groups[target.tensor.group]->values[target.tensor.values]->kind;
    }
    std::string_view kind(const Target& target) const noexcept {
        const StoredKind& its = stored_kind(target);
        return its.role == Role::states ? its.state : TornValues::parameters;
    }

    void read() {
        std::unique_ptr<engine::MemoryCopies> copies;  // made if the host cannot write some values
        for (Target& target : plan_->targets) {
            const SavedGroup& group = *state_.groups[target.tensor.group];
            const SavedValues& values = *group.values[target.tensor.values];
            if (copies == nullptr && !values.on_host) { copies = values.copies(where_); }
            const TensorReader reader(target.tensor, group, files_->file(*target.from), target.from->tensor.type,
                                      {world_.rank(), world_.size()}, copies.get(), target.rest);
            target.digest = reader.read(target.digests && files_->verified());
            ++plan_->report.tensors;
        }
        for (std::size_t slot = 0; copies != nullptr && slot < engine::MemoryCopies::slots; ++slot) {
            copies->finish(slot);
        }
        for (const auto& group : state_.groups) { group->take_copies(); }
    }
    /// Checks that every byte that any rank has read is the byte that was written. Collective over the world.
    void verify() {
        List<std::uint32_t> own;
        for (const Target& target : plan_->targets) { own.push_back(target.digest); }
        const auto all = world_.gather(own.span(), where_);
        for (std::size_t t = 0; t < plan_->targets.size(); ++t) {
            if (!plan_->targets[t].digests) { continue; }
            std::uint32_t sum = 0;
            for (std::size_t rank = 0; rank < world_.size(); ++rank) { sum ^= all[rank * own.size() + t]; }
            LoadPlan::Stored& from = *plan_->targets[t].from;
            const PlannedTensor& its = plan_->targets[t].tensor;
            from.sum ^= crc32c::behind(sum, from.begin + from.tensor.bytes.size() - (its.begin + its.bytes));
        }
        for (const LoadPlan::Stored& from : files_->tensors()) {
            if (from.read && crc32c::finished(from.sum, from.tensor.bytes.size()) != from.crc32c) {
                throw_damaged(files_->path(from), concat("tensor '", from.tensor.name, "'"), where_);
            }
        }
    }

    RankWorld& world_;
    checkpoint::LoadOptions options_;
    checkpoint::FileCalls& calls_;
    SourceLocation where_;
    SavedState state_;
    std::unique_ptr<CheckpointFiles> files_;
    std::optional<LoadPlan> plan_;
};

}  // namespace shardkit::detail
