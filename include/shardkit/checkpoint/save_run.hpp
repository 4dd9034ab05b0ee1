// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <shardkit/checkpoint/checkpoint_folder.hpp>
#include <shardkit/checkpoint/checkpoint_plan.hpp>
#include <shardkit/checkpoint/manifest.hpp>
#include <shardkit/checkpoint/same_updates.hpp>
#include <shardkit/checkpoint/save_options.hpp>
#include <shardkit/checkpoint/together.hpp>
#include <shardkit/checkpoint/write_jobs.hpp>

namespace shardkit::detail {

/// One save on one rank: begin, write on any thread, commit.
class SaveRun final : public MemoryReader {
  public:
    SaveRun(std::unique_ptr<RankWorld> world, std::string folder, std::uint64_t step, SaveOptions options,
            SourceLocation where)
        : world_(std::move(world)),
          options_(std::move(options)),
          calls_(options_.files != nullptr ? *options_.files : posix_files()),
          folder_(std::move(folder)),
          step_(step),
          where_(where) {}
    SaveRun(const SaveRun&) = delete;
    SaveRun& operator=(const SaveRun&) = delete;
    /// Abandons what was not committed. What its writer failed with is told by the next save.
    ~SaveRun() {
        end_writing();
        abandon();
        // A file that is not there any more: rank 0 has dropped the save before this one.
        const bool removed = failure_.text().ends_with(errno_text(ENOENT));
        if (failure_.happened() && !removed) { world_->untold() = failure_; }
    }

    /// Makes the folder and its files, and decides who writes what. Collective over the world.
    /// @param capture  gives the state as it is
    /// @param beside   it will be written beside the rank's own work
    template <class Capture>
    void begin(const Capture& capture, bool beside) {
        beside_ = beside;
        const Failure dropped = std::exchange(world_->untold(), {});
        together(*world_, where_, [&] {
            dropped.raise_own("a save that was dropped before it was committed had failed: ", where_);
            if (folder_.empty()) { throw_invalid_argument(where_, "save: the folder has no name"); }
            state_ = capture();
            for (const auto& group : state_.groups) {
                group->require_idle("save", where_);
                group->require_whole("save", where_);
            }
            plan_.emplace(state_, options_.names, options_.max_file_bytes, where_);
        });
        require_same_updates(*world_, "save", state_.groups, where_);
        agree();
        on_first([&] { make_files(); });
        jobs_.emplace(*plan_, state_, world_->rank(), world_->size(), beside && options_.staging == Staging::copy,
                      where_);
    }
    /// Writes this rank's part. What fails is told in commit.
    void write() noexcept {
        failure_ = attempt([&] { jobs_->run(calls_, temporary_, beside_, where_); });
    }
    /// The same on a thread of its own, which calls the file system only; updates of the groups wait for it.
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
    /// Collective over the world. @throws on every rank when it failed on one; nothing of it is left then
    CheckpointFolder commit(SourceLocation where) {
        end_writing();
        Fnv identity;
        identity.add(temporary_);
        require_same(*world_, "commit", concat(folder_, "/", step_name(step_)), identity.hash, where);
        give_up_on(std::exchange(failure_, {}));
        const Manifest manifest = gather_digests();
        CheckpointFolder made{concat(folder_, "/", step_name(step_)), step_, {}};
        on_first([&] { finish(manifest, made); });
        return made;
    }

  private:
    /// That all ranks write the same, and under which name until it is committed: rank 0's choice.
    void agree() {
        struct Agreed {
            std::uint64_t hash;
            std::uint64_t token;
        };
        const std::array<std::size_t, 4> numbers{plan_->hash(), step_, options_.keep, options_.replace ? 1U : 0U};
        Fnv fnv;
        fnv.add(numbers);
        fnv.add(folder_);
        for (const auto& [key, value] : options_.strings) {
            fnv.add(key);
            fnv.add(value);
        }
        const Agreed own{fnv.hash, new_token()};
        const auto all = world_->gather(own, where_);
        const Agreed& first = all.front();
        for (std::size_t rank = 1; rank < all.size(); ++rank) {
            if (all[rank].hash == first.hash) { continue; }
            throw_invalid_argument(where_, "save: rank ", rank, " would write something else than rank 0 (hash ",
                                   all[rank].hash, ", ", first.hash,
                                   "), expected the same folder, step, groups, names, scalars, blobs and options on "
                                   "every rank");
        }
        temporary_ = concat(folder_, "/", step_name(step_), temporary_mark,
                            digest_text(static_cast<std::uint32_t>(first.token >> 32U)),
                            digest_text(static_cast<std::uint32_t>(first.token)));
    }

    void make_files() {
        make_folders(calls_, folder_, where_);
        remove_stale();
        const std::string target = concat(folder_, "/", step_name(step_));
        if (std::vector<std::string> names; !options_.replace && calls_.list(target, names) != ENOENT) {
            throw FileError(target, "exists, and SaveOptions::replace was not given", where_);
        }
        make_temporary();
        for (const PlannedFile& file : plan_->files) {
            const std::string path = concat(temporary_, "/", file.name);
            require(calls_.create_file(path), path, "cannot be made", where_);
            // Before anything is written, where that keeps nobody waiting.
            if (!beside_) { OpenFile::to_write(calls_, path, where_).reserve(file.bytes); }
        }
    }
    /// Another job that looks for what was left may find the folder before it is locked, and remove it: made again.
    void make_temporary() {
        for (std::size_t tries = 1;; ++tries) {
            const int made = calls_.make_folder(temporary_);
            require(made == EEXIST && tries > 1 ? 0 : made, temporary_, "cannot be made", where_);
            made_ = true;
            int held = -1;
            int error = calls_.lock(temporary_, held);
            if (error == 0) {
                lock_ = held;
                error = calls_.make_folder(concat(temporary_, "/state"));
                if (error == 0) { return; }
                calls_.unlock(*std::exchange(lock_, std::nullopt));
            }
            if ((error != ENOENT && error != EWOULDBLOCK) || tries == 1000) {
                require(error, temporary_, "cannot be locked, or has no room for a folder", where_);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    /// What a process left that ended within a save: nobody holds its lock.
    void remove_stale() {
        std::vector<std::string> names;
        require(calls_.list(folder_, names), folder_, "cannot be listed", where_);
        for (const std::string& name : names) {
            const std::size_t mark = name.find(temporary_mark);
            if (mark == std::string::npos || !step_of(std::string_view(name).substr(0, mark))) { continue; }
            const std::string path = concat(folder_, "/", name);
            int held = -1;
            if (calls_.lock(path, held) != 0) { continue; }
            remove_all(calls_, path);  // what cannot be removed is told by `latest`
            calls_.unlock(held);
        }
    }

    void end_writing() noexcept {
        wait();
        if (thread_.joinable()) { thread_.join(); }
        if (!std::exchange(holds_, false)) { return; }
        for (const auto& group : state_.groups) { group->set_reader(nullptr); }
    }

    /// Every rank's digests, added up into the manifest. Collective over the world.
    Manifest gather_digests() {
        std::vector<std::uint32_t> own;
        for (const auto& file : jobs_->digests()) { own.insert(own.end(), file.begin(), file.end()); }
        const auto all = world_->gather(std::span<const std::uint32_t>(own), where_);
        std::vector<std::uint32_t> sums(own.size(), 0);
        for (std::size_t i = 0; i < all.size(); ++i) { sums[i % sums.size()] ^= all[i]; }
        Manifest manifest{step_, {}, options_.strings};
        std::size_t next = 0;
        for (const PlannedFile& file : plan_->files) {
            manifest.files.push_back({file.name, file.bytes, text_digest(file.begin), file.digests});
            for (const PlannedTensor& tensor : file.tensors) {
                manifest.files.back().tensors.push_back({tensor.name, crc32c::finished(sums[next++], tensor.bytes)});
            }
        }
        if (!plan_->index.empty()) {
            manifest.files.push_back({std::string(index_name), plan_->index.size(), text_digest(plan_->index), {}});
        }
        return manifest;
    }

    /// What rank 0 does when every file is on the disk.
    void finish(const Manifest& manifest, CheckpointFolder& made) {
        if (!plan_->index.empty()) { write_file(calls_, concat(temporary_, "/", index_name), plan_->index, where_); }
        write_file(calls_, concat(temporary_, "/", manifest_name), manifest_text(manifest), where_);
        for (const std::string& made_here : {concat(temporary_, "/state"), temporary_}) {
            require(calls_.sync_folder(made_here), made_here, "cannot be made durable", where_);
        }
        int error = calls_.rename(temporary_, made.path);
        if (error == EEXIST && options_.replace) {
            // The old one is there until the new one is, and goes as what was never committed.
            error = calls_.exchange(temporary_, made.path);
            require(error, made.path, "cannot be replaced", where_);
        } else {
            require(error, made.path, "cannot take its name", where_);
            made_ = false;
        }
        require(calls_.sync_folder(folder_), folder_, "cannot be made durable", where_);
        abandon();
        if (options_.keep > 0) { remove_old(made); }
    }
    /// All but the newest steps. What cannot be removed is told: the save itself is committed.
    void remove_old(CheckpointFolder& made) {
        std::vector<std::string> names;
        if (const int error = calls_.list(folder_, names); error != 0) {
            made.skipped.push_back(concat(folder_, ": ", errno_text(error)));
            return;
        }
        std::vector<std::uint64_t> steps;
        for (const std::string& name : names) {
            if (const auto step = step_of(name)) { steps.push_back(*step); }
        }
        std::sort(steps.rbegin(), steps.rend());
        for (std::size_t i = steps.size(); i-- > options_.keep;) {
            if (steps[i] == step_) { continue; }
            const std::string old = concat(folder_, "/", step_name(steps[i]));
            const std::string going = concat(old, temporary_.substr(temporary_.rfind(temporary_mark)));
            int error = calls_.rename(old, going);
            if (error == 0) { error = remove_all(calls_, going); }
            if (error != 0) { made.skipped.push_back(concat(old, ": ", errno_text(error))); }
        }
    }

    /// Removes what has not been committed.
    void abandon() noexcept {
        try {
            if (std::exchange(made_, false)) { remove_all(calls_, temporary_); }
            if (lock_) { calls_.unlock(*std::exchange(lock_, std::nullopt)); }
        } catch (...) {}  // NOLINT(bugprone-empty-catch): of no memory; the next save removes it
    }
    /// `work` on rank 0; when it fails, nothing is left before any rank throws. Collective over the world.
    template <class F>
    void on_first(F&& work) {
        give_up_on(attempt([&] {
            if (world_->rank() == 0) { work(); }
        }));
    }
    void give_up_on(const Failure& own) {
        const Failure first = Failure::first(*world_, own, where_);
        if (!first.happened()) { return; }
        abandon();
        world_->gather('\0', where_);
        first.raise(where_);
    }
    static std::uint32_t text_digest(const std::string& text) { return crc32c::of(std::as_bytes(std::span(text))); }

    std::unique_ptr<RankWorld> world_;
    SaveOptions options_;
    FileCalls& calls_;
    std::string folder_;
    std::uint64_t step_;
    SourceLocation where_;
    SavedState state_;
    std::optional<CheckpointPlan> plan_;
    std::optional<WriteJobs> jobs_;
    std::string temporary_;
    bool beside_ = false;      // written beside the rank's own work
    bool made_ = false;        // by rank 0
    std::optional<int> lock_;  // which holds it
    Failure failure_;          // of the writer, until it is told
    bool holds_ = false;       // the groups' updates
    bool writing_ = false;
    std::mutex mutex_;
    std::condition_variable done_;
    std::thread thread_;
};

}  // namespace shardkit::detail
