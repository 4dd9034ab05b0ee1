// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_state.hpp>
#include <shardkit/checkpoint/find_numbers.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/load_plan.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/read_tensor.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/detail/list.hpp>

namespace shardkit::detail {

/// One load on one rank, of files or of what other ranks hold. `run` loads from files; a load from elsewhere takes
/// the same steps: `plan`, `require_same_plans`, `begin`, write what the targets ask for, `end_writing` and, if no
/// rank has failed, `take_numbers` and `end`.
class LoadRun {
  public:
    using Target = LoadPlan::Target;

    /// @param verb  what errors call it
    LoadRun(RankWorld& world, checkpoint::LoadOptions options, SourceLocation where, std::string_view verb = "load")
        : world_(world),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          where_(where),
          verb_(verb) {}

    /// Collective over the world. `open(calls)` gives the files.
    template <class Open>
    checkpoint::LoadReport run(const Open& open, const checkpoint::State& state) {
        const auto twice = world_.rank() == 0 ? LoadPlan::Twice::compared : LoadPlan::Twice::elsewhere;
        together(world_, where_, [&] { plan([&] { return open(calls_); }, state, twice); });
        require_same_plans(world_);
        begin();
        const Failure failure = world_.first(attempt([&] { read(); }), where_);
        // This follows a failure too, so that the same copies are stale on every rank.
        end_writing();
        failure.raise(where_);
        if (files_->verified()) { verify(); }
        // Values are torn until what counts them is theirs.
        together(world_, where_, [&] { take_numbers(state); });
        return end();
    }

    /// Finds what is loaded from the files `open()`, and checks that it can be. Nothing has changed afterwards.
    template <class Open>
    void plan(const Open& open, const checkpoint::State& state, LoadPlan::Twice twice) {
        state_ = state.capture(where_);
        files_ = std::make_unique<CheckpointFiles>(open());
        for (const auto& group : state_.groups) {
            group->require_idle(verb_, where_);
            group->group().begin_write(where_);
        }
        plan_.emplace(state_, *files_, options_, twice, where_);
        if (options_.states) { state.check_numbers(state_, where_); }
    }
    /// Checks that `ranks` load the same. Collective over them.
    void require_same_plans(RankWorld& ranks) const {
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
        require_same(ranks, verb_,
                     concat(files_->first_path().empty() ? "nothing" : files_->first_path(),
                            plan_->targets.empty() ? ""
                                                   : concat(", ", plan_->targets.size(), " tensors, first '",
                                                            plan_->targets.front().tensor.name, "'"),
                            options_.states ? "" : ", without states", options_.subset ? ", a subset" : ""),
                     identity.hash, where_);
    }
    /// Marks the values as half written, until `end`.
    void begin() {
        for (std::size_t t = plan_->targets.size(); t-- > 0;) {
            const Target& target = plan_->targets[t];
            torn(target).begin(target.tensor.parameter, kind(target), verb_, where_);
        }
    }
    /// Puts what was written to copies of values in place.
    void take_copies() {
        for (const auto& group : state_.groups) { group->take_copies(); }
    }
    /// Ends the writing of values, also after an error.
    void end_writing() {
        for (const auto& group : state_.groups) { group->group().end_load(); }
    }
    /// Gives optimizers and loss scales their numbers.
    void take_numbers(const checkpoint::State& state) {
        if (options_.states) { state.restore_numbers(state_, where_); }
    }
    checkpoint::LoadReport end() {
        for (const Target& target : plan_->targets) {
            torn(target).end(target.tensor.parameter, kind(target));
            if (stored_kind(target).role == Role::parameters) {
                state_.groups[target.tensor.group]->group().note_load(target.tensor.parameter);
            }
        }
        for (FindNumbers::Blob& blob : plan_->blobs) { *blob.to = std::move(blob.bytes); }
        plan_->report.step = files_->step();
        plan_->report.strings = files_->strings();
        return plan_->report;
    }

    List<Target>& targets() noexcept { return plan_->targets; }
    const SavedGroup& group(const Target& target) const noexcept { return *state_.groups[target.tensor.group]; }
    const SavedState& state() const noexcept { return state_; }
    const CheckpointFiles& files() const noexcept { return *files_; }

  private:
    TornValues& torn(const Target& target) const noexcept { return group(target).group().torn(); }
    const StoredKind& stored_kind(const Target& target) const noexcept {
        return group(target).values[target.tensor.values]->kind;
    }
    std::string_view kind(const Target& target) const noexcept {
        const StoredKind& its = stored_kind(target);
        return its.role == Role::states ? its.state : TornValues::parameters;
    }

    void read() {
        ValueMemory memory(where_);
        for (Target& target : plan_->targets) {
            const SavedGroup& group = this->group(target);
            TensorReader reader(target.tensor, group, files_->file(*target.from), target.from->tensor.type,
                                {world_.rank(), world_.size()}, memory, target.rest);
            target.digest = reader.read(target.digests && files_->verified());
            ++plan_->report.tensors;
        }
        memory.finish();
        take_copies();
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
    std::string_view verb_;
    SavedState state_;
    std::unique_ptr<CheckpointFiles> files_;
    std::optional<LoadPlan> plan_;
};

}  // namespace shardkit::detail

namespace shardkit::checkpoint SHARDKIT_FACE {

SHARDKIT_CORE_INLINE Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, FileCalls* files,
                                      SourceLocation where) {
    detail::RankWorld world(rank, "roll_back");
    Folder made{detail::concat(folder, "/", detail::step_name(step)), step, {}};
    detail::Fnv identity;
    identity.add(made.path);
    detail::require_same(world, "roll_back", made.path, identity.hash, where);
    detail::together(world, where, [&] {
        if (world.rank() != 0) { return; }
        FileCalls& calls = files != nullptr ? *files : detail::posix_files();
        detail::StepFolders(calls, folder, made.skipped).roll_back(step, detail::new_token(), where);
    });
    return made;
}
SHARDKIT_CORE_INLINE std::optional<Folder> latest(Rank& rank, const std::string& folder, FileCalls* files,
                                                  SourceLocation where) {
    detail::RankWorld world(rank, "latest");
    std::optional<Folder> found;
    std::vector<std::string> skipped;
    detail::together(world, where, [&] {
        if (world.rank() != 0) { return; }
        found = detail::latest_of(files != nullptr ? *files : detail::posix_files(), folder, skipped, where);
    });
    struct Found {
        std::uint64_t there;
        std::uint64_t step;
    };
    const Found own{found ? 1U : 0U, found ? found->step : 0};
    const Found first = world.gather(own, where).front();
    if (first.there == 0) { return std::nullopt; }
    return Folder{detail::concat(folder, "/", detail::step_name(first.step)), first.step,
                  found ? found->skipped : skipped};
}
SHARDKIT_CORE_INLINE LoadReport load(Rank& rank, const std::string& folder, const State& state,
                                     const LoadOptions& options, SourceLocation where) {
    rank.require_same("load", state.rank(), "checkpoint::State", where);
    detail::RankWorld world(rank, "load");
    detail::LoadRun run(world, options, where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_checkpoint(calls, folder, where); },
                   state);
}
SHARDKIT_CORE_INLINE LoadReport load_model(Rank& rank, const std::string& path, const Model& model,
                                           const LoadOptions& options, SourceLocation where) {
    const State state(model, where);
    rank.require_same("load_model", state.rank(), "model", where);
    detail::RankWorld world(rank, "load");
    detail::LoadRun run(world, options, where);
    return run.run([&](FileCalls& calls) { return detail::CheckpointFiles::of_model(calls, path, where); }, state);
}

}  // namespace SHARDKIT_FACE
