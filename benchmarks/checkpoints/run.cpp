// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint.hpp>
#include <shardkit/checkpoint/crc32c.hpp>
#include <shardkit/mesh/device_mesh.hpp>

#include "../../examples/common/resident_memory.hpp"
#include "../common/measure.hpp"
#include "files.hpp"
#include "model.hpp"
#include "plain_files.hpp"
#include "report.hpp"

namespace benchmarks::checkpoints {

namespace {

namespace fs = std::filesystem;

/// Removed at the end.
class Folder {
  public:
    explicit Folder(const std::string& parent)
        : path_((parent.empty() ? fs::temp_directory_path() : fs::path(parent)) /
                ("shardkit_checkpoints_" + std::to_string(std::random_device{}()))) {
        fs::create_directories(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    std::string of(const std::string& name) const { return (path_ / name).string(); }

  private:
    fs::path path_;
};

/// Bytes in which the files of two folders differ, of the same names.
std::uint64_t different_bytes(const std::string& a, const std::string& b) {
    std::uint64_t wrong = 0;
    for (const auto& entry : fs::recursive_directory_iterator(a)) {
        if (!entry.is_regular_file()) { continue; }
        std::ifstream one(entry.path(), std::ios::binary);
        std::ifstream other(fs::path(b) / fs::relative(entry.path(), a), std::ios::binary);
        std::vector<char> here(std::size_t{1} << 20U);
        std::vector<char> there(here.size());
        for (;;) {
            one.read(here.data(), static_cast<std::streamsize>(here.size()));
            other.read(there.data(), static_cast<std::streamsize>(there.size()));
            const auto count = static_cast<std::size_t>(one.gcount());
            const auto other_count = static_cast<std::size_t>(other.gcount());
            wrong += count > other_count ? count - other_count : other_count - count;
            for (std::size_t i = 0; i < std::min(count, other_count); ++i) { wrong += here[i] == there[i] ? 0U : 1U; }
            if (count == 0) { break; }
        }
    }
    return wrong;
}

/// The peak of ResidentMemory begins anew.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

std::uint64_t collectives_of(shardkit::Rank& rank) {
    std::uint64_t calls = 0;
    for (const auto& entry : rank.traffic().entries()) { calls += entry.calls; }
    return calls;
}

/// Everything on one rank. Collective over the world.
class RankRun {
  public:
    RankRun(shardkit::Rank& rank, const Options& options, const Folder& folder, CountedFiles& disk,
            CountedFiles& cached, Measured& measured)
        : rank_(rank),
          options_(options),
          folder_(folder),
          disk_(disk),
          cached_(cached),
          measured_(measured),
          model_(rank, options.chosen_policy(), options.elements),
          plain_(folder.of("."), model_.numel() * 4, rank.rank(), rank.world_size()) {}

    void run() {
        model_.begin();
        check_and_count();
        std::vector<Interval> own;
        for (std::size_t round = 0; round <= options_.rounds; ++round) {
            std::array<Interval, timings> of_round = one_round(round % 2 == 0);
            if (round > 0) { own.insert(own.end(), of_round.begin(), of_round.end()); }  // the first one warms up
        }
        const std::vector<double> seconds = world_seconds(rank_, own);
        const auto summary = [&](std::size_t timing) {
            std::vector<double> times;
            for (std::size_t at = timing; at < seconds.size(); at += timings) { times.push_back(seconds[at]); }
            return summarise(times);
        };
        if (rank_.rank() != 0) { return; }
        const char* const written = "plain pwrite into the page cache";
        measured_.rows = {{"save", "plain pwrite and fdatasync", summary(0), summary(1)},
                          {"save, page cache", written, summary(2), summary(3)},
                          {"begin_save", "", summary(4), {}},
                          {"commit", "", summary(5), {}},
                          {"load, warm", "plain pread out of the page cache", summary(6), summary(7)},
                          {"load, cold", "plain pread from the disk", summary(8), summary(9)}};
        measured_.digest_share = summary(10).median / summary(11).median - 1;
    }

  private:
    static constexpr std::size_t timings = 12;

    void save(const std::string& name, CountedFiles& files) {
        shardkit::checkpoint::save(rank_, folder_.of(name), 1, model_.state(), {.files = &files});
    }
    void load(const std::string& name, CountedFiles& files) {
        shardkit::checkpoint::load(rank_, folder_.of(name) + "/step-00000001", model_.state(), {.files = &files});
    }
    /// On rank 0; the others wait.
    void alone(const std::function<void()>& work) {
        meet(rank_);
        if (rank_.rank() == 0) { work(); }
        meet(rank_);
    }
    void make_plain() {
        alone([&] { plain_.make(model_.numel() * 4); });
    }
    void remove_plain() {
        alone([&] { plain_.remove(); });
    }
    /// Pages of what one of the two has left are warm for the other one: nothing is left, and they take turns to
    /// begin.
    static void in_turn(bool first, const std::function<void()>& ours, const std::function<void()>& plain) {
        if (first) { ours(); }
        plain();
        if (!first) { ours(); }
    }
    void remove(const std::string& name) {
        alone([&] { fs::remove_all(folder_.of(name)); });
    }

    /// What is loaded into another model, and saved from there, is what was saved.
    void check_and_count() {
        const auto counted = [&](std::uint64_t& calls, std::uint64_t& memory, const std::function<void()>& work) {
            std::uint64_t before = 0;
            alone([&] {
                forget_peak();
                before = program::ResidentMemory::read().now;
            });
            const std::uint64_t calls_before = collectives_of(rank_);
            work();
            const std::uint64_t made = collectives_of(rank_) - calls_before;
            alone([&] {
                calls = made;
                const std::uint64_t peak = program::ResidentMemory::read().peak;
                memory = peak > before ? peak - before : 0;
            });
        };
        counted(measured_.collectives_save, measured_.extra_memory_save, [&] { save("kept", disk_); });
        Model other(rank_, options_.chosen_policy(), options_.elements);
        const std::string kept = folder_.of("kept") + "/step-00000001";
        counted(measured_.collectives_load, measured_.extra_memory_load,
                [&] { shardkit::checkpoint::load(rank_, kept, other.state(), {.files = &disk_}); });
        alone([&] {
            measured_.bytes_written = disk_.written;
            measured_.bytes_read = disk_.was_read;
            measured_.state_bytes = model_.numel() * 12;
        });
        shardkit::checkpoint::save(rank_, folder_.of("again"), 1, other.state(), {.files = &cached_});
        alone([&] { measured_.wrong = different_bytes(kept, folder_.of("again") + "/step-00000001"); });
        remove("again");
    }

    /// @param first  whether the library is the first of the two in its turns
    std::array<Interval, timings> one_round(bool first) {
        std::array<Interval, timings> t;
        const auto timed_save = [&](std::size_t timing, CountedFiles& files) {
            t[timing] = timed(rank_, [&] { save("timed", files); });
            remove("timed");
        };
        const auto unseen = [](std::span<const char>) {};
        const auto digested = [](std::span<const char> bytes) {
            const std::uint32_t remainder = shardkit::detail::crc32c::extend(0, std::as_bytes(bytes));
            asm volatile("" : : "r"(remainder));  // nobody reads it, yet it is to be made
        };
        const auto plain = [&](std::size_t timing, bool to_disk, const auto& look) {
            make_plain();
            t[timing] = timed(rank_, [&] { plain_.write(to_disk, look); });
            remove_plain();
        };
        remove_plain();
        in_turn(
            first, [&] { timed_save(0, disk_); }, [&] { plain(1, true, unseen); });
        in_turn(
            first, [&] { timed_save(2, cached_); }, [&] { plain(3, false, unseen); });
        in_turn(
            first, [&] { plain(10, false, digested); }, [&] { plain(11, false, unseen); });
        std::unique_ptr<shardkit::checkpoint::PendingSave> pending;
        t[4] = timed(rank_, [&] {
            pending = std::make_unique<shardkit::checkpoint::PendingSave>(
                shardkit::checkpoint::begin_save(rank_, folder_.of("timed"), 1, model_.state(), {.files = &cached_}));
        });
        t[5] = timed(rank_, [&] { std::move(*pending).commit(); });
        remove("timed");
        make_plain();
        plain_.write(true, unseen);
        load("kept", cached_);
        t[6] = timed(rank_, [&] { load("kept", cached_); });
        plain_.read();
        t[7] = timed(rank_, [&] { plain_.read(); });
        alone([&] { PlainFiles::forget(folder_.of(".")); });
        t[8] = timed(rank_, [&] { load("kept", cached_); });
        t[9] = timed(rank_, [&] { plain_.read(); });
        return t;
    }
    shardkit::Rank& rank_;
    const Options& options_;
    const Folder& folder_;
    CountedFiles& disk_;
    CountedFiles& cached_;
    Measured& measured_;
    Model model_;
    PlainFiles plain_;
};

}  // namespace

Measured run(const Options& options) {
    const Folder folder(options.folder);
    const std::unique_ptr<CountedFiles> disk = make_files(true);
    const std::unique_ptr<CountedFiles> cached = make_files(false);
    Measured measured;
    shardkit::threads::run(shardkit::DeviceMesh(options.ranks), [&](shardkit::Rank& rank) {
        RankRun(rank, options, folder, *disk, *cached, measured).run();
    });
    return measured;
}

}  // namespace benchmarks::checkpoints
