// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_files.hpp>
#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/convert_elements.hpp>
#include <shardkit/checkpoint/file_names.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/options.hpp>
#include <shardkit/checkpoint/prove_load.hpp>
#include <shardkit/checkpoint/same_on_all_ranks.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/checkpoint/step_folders.hpp>
#include <shardkit/checkpoint/temporary_folder.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>

namespace shardkit::detail {

/// One save on one rank: begin, write on any thread, commit.
class SaveRun final : public MemoryReader, NotCopied {
  public:
    SaveRun(Rank& rank, std::string folder, std::uint64_t step, checkpoint::SaveOptions options, SourceLocation where)
        : world_(rank, concat("a save in ", folder)),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          folder_(std::move(folder)),
          step_(step),
          where_(where) {}
    /// Abandons the save if it was not committed. The next save reports its writer's error.
    ~SaveRun() {
        end_writing();
        temporary_.end();
        // A missing file is no error: rank 0 has abandoned its save first and removed it.
        const bool removed = failure_.text().ends_with(errno_text(ENOENT));
        if (failure_.happened() && !removed) { world_.untold() = failure_; }
    }

    /// Makes the folder and its files, and distributes the writing over ranks. Collective over the world.
    /// @param capture  returns the current state
    /// @param beside   whether it will be written in the background
    template <class Capture>
    void begin(const Capture& capture, bool beside) {
        beside_ = beside;
        const Failure dropped = std::exchange(world_.untold(), {});
        together(world_, where_, [&] {
            dropped.raise_own("a save that was dropped before it was committed had failed: ", where_);
            if (folder_.empty()) { throw_invalid_argument(where_, "save: the folder has no name"); }
            state_ = capture();
            for (const auto& group : state_.groups) {
                group->require_idle("save", where_);
                group->group().require_whole("save", where_);
            }
            plan_.emplace(state_, options_.names, options_.max_file_bytes, where_);
            const List<std::uint32_t> no_digests(plan_->tensors());
            prove_load(*plan_, state_, options_.names, concat(folder_, "/", step_name(step_)),
                       manifest_of(*plan_, step_, options_.strings, no_digests), world_.proven(), where_);
        });
        require_same_updates(world_, "save", state_.groups, where_);
        agree();
        temporary_.on_first(world_, where_, [&] { make_files(); });
        jobs_.emplace(*plan_, state_, world_.rank(), world_.size(),
                      beside && options_.staging == checkpoint::Staging::copy, where_);
    }
    /// Writes this rank's part. `commit` reports errors.
    void write() noexcept {
        failure_ = attempt([&] { jobs_->run(calls_, temporary_.path, beside_, where_); });
    }
    /// Writes on a background thread, which only makes file system calls. Updates of the groups wait for it.
    void write_beside() {
        if (jobs_->reads_state()) {
            holds_ = true;
            for (const auto& group : state_.groups) { group->set_reader(this); }
        }
        writing_ = true;
        thread_ = std::thread([this] {
            write();
            const std::lock_guard lock(mutex_);
            writing_ = false;
            done_.notify_all();
        });
    }
    void wait() noexcept override {
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return !writing_; });
    }
    /// Commits the save. Collective over the world. @throws on every rank when it failed on one; nothing of it is
    /// left then
    checkpoint::Folder commit(SourceLocation where) {
        end_writing();
        Fnv identity;
        identity.add(temporary_.path);
        require_same(world_, "commit", concat(folder_, "/", step_name(step_)), identity.hash, where);
        temporary_.give_up_on(world_, std::exchange(failure_, {}), where_);
        const Manifest manifest = gather_digests();
        checkpoint::Folder made{concat(folder_, "/", step_name(step_)), step_, std::move(told_)};
        temporary_.on_first(world_, where_, [&] { finish(manifest, made); });
        return made;
    }

  private:
    /// Returns what all ranks must give alike for the save.
    Statements statements() const {
        Statements all{{"folder", concat("'", folder_, "'")},
                       {"step", concat(step_)},
                       {"keep", concat(options_.keep)},
                       {"keep_every", concat(options_.keep_every)},
                       {"replace", options_.replace ? "on" : "off"},
                       {"set_aside", options_.set_aside ? "on" : "off"}};
        for (const auto& [key, value] : options_.strings) { all.push_back({concat("string '", key, "'"), value}); }
        return all;
    }
    /// Checks that all ranks write the same. Rank 0 chooses the name until it is committed.
    void agree() {
        struct Agreed {
            std::uint64_t hash;
            std::uint64_t token;
        };
        Statements mine = statements();
        Fnv fnv;
        fnv.add(plan_->hash());
        for (const Statement& one : mine) {
            fnv.add(one.name);
            fnv.add(one.value);
        }
        const Agreed own{fnv.hash, new_token()};
        const auto all = world_.gather(own, where_);
        const Agreed& first = all.front();
        for (std::size_t rank = 1; rank < all.size(); ++rank) {
            if (all[rank].hash == first.hash) { continue; }
            plan_->list(mine);
            const auto [zero, other] = stated_apart(0, rank, where_, [&](std::size_t number) {
                return world_.gather(StatementRecord(mine, number), where_);
            });
            throw_invalid_argument(where_, "save: rank 0 would write", zero, ", rank ", rank, other,
                                   ", expected the same folder, step, groups, names, scalars, blobs and options on "
                                   "every rank");
        }
        temporary_.path = concat(folder_, "/", temporary_name(step_, first.token));
    }

    void make_files() {
        make_folders(calls_, folder_, where_);
        steps().remove_stale(where_);
        const std::string target = concat(folder_, "/", step_name(step_));
        if (std::vector<std::string> names; calls_.list(target, names) != ENOENT) {
            if (!sets_aside()) { require_replaceable(); }
        }
        temporary_.make(where_);
        const std::string states = concat(temporary_.path, "/state");
        require(calls_.make_folder(states), states, "cannot be made", where_);
        for (const PlannedFile& file : plan_->files) {
            const std::string path = concat(temporary_.path, "/", file.name);
            require(calls_.create_file(path), path, "cannot be made", where_);
            // Without a background writer, space is reserved before anything is written.
            if (!beside_) { OpenFile::to_write(calls_, path, where_).reserve(file.bytes); }
        }
    }
    void end_writing() noexcept {
        wait();
        if (thread_.joinable()) { thread_.join(); }
        if (!std::exchange(holds_, false)) { return; }
        for (const auto& group : state_.groups) { group->set_reader(nullptr); }
    }

    /// Adds up all ranks' digests for the manifest. Collective over the world.
    Manifest gather_digests() {
        List<std::uint32_t> own;
        for (const List<std::uint32_t>& file : jobs_->digests()) { own.append(file.begin(), file.end()); }
        const auto all = world_.gather(own.span(), where_);
        List<std::uint32_t> sums(own.size());
        for (std::size_t i = 0; i < all.size(); ++i) { sums[i % sums.size()] ^= all[i]; }
        return manifest_of(*plan_, step_, options_.strings, sums);
    }

    /// Commits on rank 0, when every file is durable.
    void finish(const Manifest& manifest, checkpoint::Folder& made) {
        const std::string& temporary = temporary_.path;
        if (!plan_->index.empty()) { write_file(calls_, concat(temporary, "/", index_name), plan_->index, where_); }
        write_file(calls_, concat(temporary, "/", manifest_name), manifest_text(manifest), where_);
        for (const std::string& made_here : {concat(temporary, "/state"), temporary}) {
            require(calls_.sync_folder(made_here), made_here, "cannot be made durable", where_);
        }
        // Reads everything back that a load needs, before the folder gets its name and older steps are removed.
        require_loadable(CheckpointFiles::of_checkpoint(calls_, temporary, where_));
        take_name(made);
        require(calls_.sync_folder(folder_), folder_, "cannot be made durable", where_);
        const std::string mark = concat(made.path, "/", mark_name);
        const int left = calls_.remove_file(mark);
        if (left != 0) { made.skipped.push_back(concat(mark, ": ", errno_text(left))); }
        temporary_.end();
        if (options_.keep == 0) { return; }
        try {
            StepFolders(calls_, folder_, made.skipped)
                .keep(step_, options_.keep, options_.keep_every, new_token(), where_);
        } catch (const FileError& error) {
            // The save itself is committed already.
            made.skipped.push_back(concat(error.path(), " ", error.what_happened()));
        }
    }
    /// Checks that every tensor is found by its name, with its type, shape and place.
    void require_loadable(CheckpointFiles&& files) const {
        bool same = files.step() == step_ && files.strings() == options_.strings;
        for (const PlannedFile& file : plan_->files) {
            for (const PlannedTensor& tensor : file.tensors) {
                const auto* const found = files.find(kind_of_file(file.name), tensor.name);
                same = same && found != nullptr && found->tensor.type == dtype_of(tensor.type) &&
                       found->tensor.shape == tensor.order.shape() &&
                       found->begin + tensor.order.begin() * size_of(tensor.type) == tensor.begin;
            }
        }
        if (!same) { throw FileError(temporary_.path, "has not what was written, when it is read back", where_); }
    }
    /// Returns whether what is at the step's name is to be set aside, as it is no complete step.
    bool sets_aside() { return options_.set_aside && !steps().incomplete(step_, where_).empty(); }
    void require_replaceable() {
        const std::string path = concat(folder_, "/", step_name(step_));
        constexpr std::string_view advice =
            "; checkpoint::SaveOptions::set_aside renames it, as one can by hand, and the step is saved again";
        if (!options_.replace) {
            const std::string why = steps().incomplete(step_, where_);
            if (why.empty()) {
                throw FileError(path, "exists, and checkpoint::SaveOptions::replace was not given", where_);
            }
            throw_file_error(path, where_, "exists, and is no complete step: ", why, advice);
        }
        const std::string why = steps().refusal(step_, where_);
        if (!why.empty()) { throw_file_error(path, where_, "is not replaced: ", why, advice); }
    }
    void take_name(checkpoint::Folder& made) {
        const std::string& path = made.path;
        std::string& temporary = temporary_.path;
        int error = calls_.rename(temporary, path);
        if (error == EEXIST && sets_aside()) {
            const std::string aside = aside_name(step_, new_token());
            require(calls_.rename(path, concat(folder_, "/", aside)), path, "cannot be set aside", where_);
            made.skipped.push_back(concat(aside, ": what was at the name of step ", step_, ", and no complete step"));
            error = calls_.rename(temporary, path);
        }
        if (error != EEXIST || !options_.replace) {
            require(error, path, "cannot take its name", where_);
            temporary_.was_renamed();
            return;
        }
        require_replaceable();
        // The old folder exists until the new one does, and is then removed like an abandoned save.
        error = calls_.exchange(temporary, path);
        if (error != EINVAL && error != ENOSYS && error != ENOTSUP && error != EOPNOTSUPP) {
            require(error, path, "cannot be replaced", where_);
            return;
        }
        // One after the other: if the process is killed in between, neither has the step's name.
        const std::string old = concat(folder_, "/", temporary_name(step_, new_token()));
        require(calls_.rename(path, old), path, "cannot be replaced", where_);
        error = calls_.rename(temporary, path);
        if (error != 0) { calls_.rename(old, path); }
        require(error, path, "cannot be replaced", where_);
        temporary = old;
    }

    StepFolders steps() { return {calls_, folder_, told_}; }

    RankWorld world_;
    checkpoint::SaveOptions options_;
    checkpoint::FileCalls& calls_;
    std::string folder_;
    std::uint64_t step_;
    SourceLocation where_;
    SavedState state_;
    std::optional<CheckpointPlan> plan_;
    std::optional<WriteJobs> jobs_;
    TemporaryFolder temporary_{calls_};
    std::vector<std::string> told_;  // reasons why leftovers of other saves stay
    bool beside_ = false;            // written in the background
    Failure failure_;                // of the writer, until it is reported
    bool holds_ = false;             // whether updates of the groups wait
    bool writing_ = false;
    std::mutex mutex_;
    std::condition_variable done_;
    std::thread thread_;
};

inline std::unique_ptr<SaveRun> begin_save_run(Rank& rank, const std::string& folder, std::uint64_t step,
                                               const checkpoint::State& state, const checkpoint::SaveOptions& options,
                                               bool beside, SourceLocation where) {
    rank.require_same("save", state.rank(), "checkpoint::State", where);
    auto run = std::make_unique<SaveRun>(rank, folder, step, options, where);
    run->begin([&] { return state.capture(where); }, beside);
    return run;
}

}  // namespace shardkit::detail

namespace shardkit::checkpoint SHARDKIT_FACE {

SHARDKIT_CORE_INLINE PendingSave::PendingSave(std::unique_ptr<detail::SaveRun> run) noexcept : run_(std::move(run)) {}
SHARDKIT_CORE_INLINE PendingSave::PendingSave(PendingSave&&) noexcept = default;
SHARDKIT_CORE_INLINE PendingSave& PendingSave::operator=(PendingSave&&) noexcept = default;
SHARDKIT_CORE_INLINE PendingSave::~PendingSave() = default;
SHARDKIT_CORE_INLINE Folder PendingSave::commit(SourceLocation where) && {
    const std::unique_ptr<detail::SaveRun> run = std::move(run_);
    if (run == nullptr) { throw_usage_error(where, "PendingSave: commit of what was committed, or moved from"); }
    return run->commit(where);
}

SHARDKIT_CORE_INLINE Folder save(Rank& rank, const std::string& folder, std::uint64_t step, const State& state,
                                 const SaveOptions& options, SourceLocation where) {
    const auto run = detail::begin_save_run(rank, folder, step, state, options, false, where);
    run->write();
    return run->commit(where);
}
SHARDKIT_CORE_INLINE PendingSave begin_save(Rank& rank, const std::string& folder, std::uint64_t step,
                                            const State& state, const SaveOptions& options, SourceLocation where) {
    auto run = detail::begin_save_run(rank, folder, step, state, options, true, where);
    run->write_beside();
    return PendingSave(std::move(run));
}

}  // namespace SHARDKIT_FACE
