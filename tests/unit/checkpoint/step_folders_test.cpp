// SPDX-License-Identifier: Apache-2.0
// What saves remove from a run's folder, and what stays: links, folders of others, steps that are kept, steps to
// which a run goes back; and file systems that lack a call.
#include <shardkit/checkpoint.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>
#include <shardkit/verbs/barrier.hpp>

#include "object_store.hpp"
#include "temporary_folder.hpp"
#include "unit/thrown_message.hpp"

namespace step_folders_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::contents;
using temporary_folder::Folder;

struct Weight : sk::Param<"weight", float, 5> {};
constexpr std::string_view mark = "uncommitted.shardkit";

std::string step_path(const std::string& run, std::uint64_t step) {
    std::string digits = std::to_string(step);
    digits.insert(0, 8 - digits.size(), '0');
    return run + "/step-" + digits;
}
/// Saves a step whose values are its number; what else was told.
std::vector<std::string> save(const std::string& run, std::uint64_t step, sk::checkpoint::SaveOptions options = {}) {
    std::vector<std::string> skipped;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer(rank, "layer");
        layer.initialize([&](auto, auto, auto) { return static_cast<double>(step); });
        const sk::Model model{layer};
        skipped = sk::checkpoint::save(rank, run, step, sk::checkpoint::State{model}, std::move(options)).skipped;
    });
    return skipped;
}
/// That a step has its own values.
bool is_whole(const std::string& run, std::uint64_t step) {
    bool whole = false;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer(rank, "layer");
        const sk::Model model{layer};
        try {
            sk::checkpoint::load(rank, step_path(run, step), sk::checkpoint::State{model});
        } catch (const sk::FileError&) { return; }
        const auto window = layer.unshard();
        whole = window[Weight{}][4] == static_cast<float>(step);
    });
    return whole;
}
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) { names.push_back(entry.path().filename().string()); }
    std::sort(names.begin(), names.end());
    return names;
}
std::vector<std::uint64_t> steps_in(const std::string& run) {
    std::vector<std::uint64_t> steps;
    for (const std::string& name : names_in(run)) { steps.push_back(std::stoull(name.substr(5))); }
    return steps;
}
bool says(const std::vector<std::string>& told, std::string_view name, std::string_view what) {
    return std::any_of(told.begin(), told.end(), [&](const std::string& each) {
        return each.starts_with(name) && each.find(what) != std::string::npos;
    });
}
void write(const std::string& path, std::string_view text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
}

/// A file system without some calls.
class Lacking : public sk::checkpoint::PosixFiles {
  public:
    explicit Lacking(int lock_error, int exchange_error = 0)
        : lock_error_(lock_error), exchange_error_(exchange_error) {}
    int lock(const std::string& file, int& held) override {
        return lock_error_ != 0 ? lock_error_ : PosixFiles::lock(file, held);
    }
    int exchange(const std::string& a, const std::string& b) override {
        return exchange_error_ != 0 ? exchange_error_ : PosixFiles::exchange(a, b);
    }

  private:
    int lock_error_;
    int exchange_error_;
};

/// Ends its process when a file is made in state/, or as often as it is told.
class Killed : public Lacking {
  public:
    using Lacking::Lacking;
    int create_file(const std::string& path) override {
        const int error = Lacking::create_file(path);
        if (path.ends_with("model.safetensors")) { ::kill(::getpid(), SIGKILL); }
        return error;
    }
};
/// f in a process of its own; waits until it has ended.
template <class F>
void in_child(const F& f) {
    const pid_t child = ::fork();
    if (child == 0) {
        f();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST_CASE("nothing behind a link is removed: not by keep, not by replace, not as what a killed save left") {
    const Folder folder;
    const std::string run = folder.file("run");
    const std::string archive = folder.file("archive");
    save(archive, 1);
    save(archive, 3);
    const auto before = contents(archive);
    fs::create_directories(run);
    fs::create_directory_symlink(step_path(archive, 1), step_path(run, 1));
    save(run, 2);
    const auto told = save(run, 4, {.keep = 1});
    CHECK(says(told, "step-00000001", "a link"));
    CHECK(contents(archive) == before);
    CHECK(fs::is_symlink(step_path(run, 1)));
    CHECK(steps_in(run) == std::vector<std::uint64_t>{1, 4});
    // The step that is replaced is a link.
    fs::create_directory_symlink(step_path(archive, 3), step_path(run, 3));
    const std::string refused = thrown_message<sk::FileError>([&] { save(run, 3, {.replace = true}); });
    CHECK(has(refused, "is not replaced: a link"));
    CHECK(fs::is_symlink(step_path(run, 3)));
    // And one that is called as a save that was killed.
    const std::string killed = step_path(run, 9) + ".tmp-0123456789abcdef";
    fs::create_directory_symlink(step_path(archive, 3), killed);
    CHECK(says(save(run, 5), "step-00000009.tmp-0123456789abcdef", "a link"));
    CHECK(fs::is_symlink(killed));
    CHECK(contents(archive) == before);
    // A run's folder may be one itself, and so may what lies within a step.
    fs::create_directory_symlink(run, folder.file("also"));
    fs::create_directory_symlink(archive, step_path(run, 5) + "/notes");
    save(folder.file("also"), 6, {.keep = 1});
    CHECK_FALSE(fs::exists(step_path(run, 5)));
    CHECK(contents(archive) == before);
}

TEST_CASE("what is no complete step at a step's name is told with what to do, and set aside where asked for") {
    const std::vector<std::pair<std::string, void (*)(const std::string&)>> obstacles{
        {"a folder of a user", [](const std::string& run) { write(step_path(run, 3) + "/notes.txt", "mine"); }},
        {"a file", [](const std::string& run) { write(step_path(run, 3), "mine"); }},
        {"a link",
         [](const std::string& run) {
             save(run + "/archive", 1);
             fs::create_directory_symlink(step_path(run + "/archive", 1), step_path(run, 3));
         }},
        {"a step whose manifest is cut",
         [](const std::string& run) {
             save(run, 3);
             fs::resize_file(step_path(run, 3) + "/manifest.json", 40);
         }},
        {"a step that lacks a file",
         [](const std::string& run) {
             save(run, 3);
             fs::remove(step_path(run, 3) + "/model.safetensors");
         }},
        {"a step under another one's name",
         [](const std::string& run) {
             save(run, 2);
             fs::rename(step_path(run, 2), step_path(run, 3));
         }},
    };
    for (const auto& obstacle : obstacles) {
        CAPTURE(obstacle.first);
        const Folder folder;
        const std::string run = folder.file("run");
        const std::string step = step_path(run, 3);
        save(run, 1);
        obstacle.second(run);
        const auto before = contents(run);
        for (const bool again : {false, true}) {
            CAPTURE(again);
            const std::string refused = thrown_message<sk::FileError>([&] { save(run, 3); });
            CHECK(has(refused, "step-00000003': rank 0: exists, and is no complete step: "));
            CHECK(has(refused, "checkpoint::SaveOptions::set_aside renames it, as one can by hand"));
            CHECK(contents(run) == before);
        }
        const auto told = save(run, 3, {.set_aside = true});
        CHECK(says(told, "aside-step-00000003-", "what was at the name of step 3"));
        CHECK(sk::checkpoint::info(step).step == 3);
        // Nothing of it has changed but its name, which no save looks at.
        const auto aside = [&] {
            std::string found;
            for (const std::string& name : names_in(run)) {
                if (name.starts_with("aside-step-00000003-")) { found = name; }
            }
            return found;
        }();
        REQUIRE_FALSE(aside.empty());
        for (const auto& file : before) {
            const std::string& name = file.first;
            const std::string now = name.starts_with("step-00000003") ? aside + name.substr(13) : name;
            CAPTURE(now);
            CHECK(contents(run).at(now) == file.second);
        }
        save(run, 4, {.keep = 1});
        CHECK(fs::exists(fs::symlink_status(run + "/" + aside)));
        // A complete step is replaced where that is asked for, and not set aside.
        const std::string complete = thrown_message<sk::FileError>([&] { save(run, 4, {.set_aside = true}); });
        CHECK(has(complete, "exists, and checkpoint::SaveOptions::replace was not given"));
        save(run, 4, {.replace = true, .set_aside = true});
    }
}

TEST_CASE("folders that no save has made stay, whatever they are called") {
    const Folder folder;
    const std::string run = folder.file("run");
    const std::string temporary = step_path(run, 9) + ".tmp-0123456789abcdef";
    // Of a user, who calls it as saves do; with a name that is nearly theirs; a step without a manifest, and one
    // whose manifest is another step's.
    write(temporary + "/thesis.txt", "years");
    write(step_path(run, 9) + ".tmp-backup/thesis.txt", "years");
    write(step_path(run, 1) + "/notes.txt", "mine");
    save(run, 2);
    fs::copy(step_path(run, 2), step_path(run, 3), fs::copy_options::recursive);
    const auto before = contents(run);
    const auto told = save(run, 4, {.keep = 1});
    for (const auto& file : before) {
        const std::string& name = file.first;
        if (name.starts_with("step-00000002/")) { continue; }
        CAPTURE(name);
        CHECK(fs::exists(run + "/" + name));
    }
    CHECK_FALSE(fs::exists(step_path(run, 2)));
    CHECK(says(told, "step-00000009.tmp-0123456789abcdef", "nothing that a save has made"));
    CHECK(says(told, "step-00000001", "nothing that a save has made"));
    CHECK(says(told, "step-00000003", "its manifest is of step 2"));
    const std::string refused = thrown_message<sk::FileError>([&] { save(run, 1, {.replace = true}); });
    CHECK(has(refused, "is not replaced: nothing that a save has made"));
    CHECK(has(refused, "checkpoint::SaveOptions::set_aside renames it"));
    CHECK(fs::exists(step_path(run, 1) + "/notes.txt"));
    // What a killed save left bears its mark, or nothing at all, or was a whole step that was being removed.
    write(step_path(run, 7) + ".tmp-0123456789abcdef/" + std::string(mark), "");
    write(step_path(run, 7) + ".tmp-0123456789abcdef/state/exp_avg.safetensors", "half");
    fs::create_directories(step_path(run, 8) + ".tmp-0123456789abcdef");
    fs::copy(step_path(run, 4), step_path(run, 4) + ".tmp-0123456789abcdef", fs::copy_options::recursive);
    save(run, 5);
    const auto left = names_in(run);
    CHECK(std::count_if(left.begin(), left.end(), [](const std::string& name) { return has(name, ".tmp-"); }) == 2);
    // A step whose manifest was damaged is a save's still: it is replaced, and goes when its turn comes.
    for (const std::uint64_t step : {4U, 5U}) {
        std::ofstream(step_path(run, step) + "/manifest.json", std::ios::app) << " ";
    }
    save(run, 5, {.replace = true});
    CHECK(is_whole(run, 5));
    save(run, 6, {.keep = 1});
    CHECK_FALSE(fs::exists(step_path(run, 4)));
}

TEST_CASE("steps that are damaged do not count among those that are kept") {
    const Folder folder;
    const std::string run = folder.file("run");
    for (const std::uint64_t step : {1U, 2U, 3U}) { save(run, step); }
    fs::remove(step_path(run, 3) + "/manifest.json");
    save(run, 4, {.keep = 2});
    CHECK(is_whole(run, 2));
    CHECK(is_whole(run, 4));
    CHECK_FALSE(fs::exists(step_path(run, 1)));
    CHECK(fs::exists(step_path(run, 3)));
}

TEST_CASE("a store of objects, which has no folders and no rename, holds checkpoints as a file system does") {
    object_store::Objects store;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer(rank, "layer");
        const sk::Model model{layer};
        for (std::uint64_t step = 1; step <= 3; ++step) {
            layer.initialize([&](auto, auto, std::uint64_t i) { return static_cast<double>(10 * step + i); });
            sk::checkpoint::save(rank, "bucket/run", step, sk::checkpoint::State{model},
                                 {.keep = 2, .files = &store});
        }
        layer.initialize([](auto, auto, auto) { return 0.0; });
        const auto found = sk::checkpoint::latest(rank, "bucket/run", &store);
        REQUIRE(found);
        CHECK(found->path == "bucket/run/step-00000003");
        sk::checkpoint::load(rank, found->path, sk::checkpoint::State{model}, {.files = &store});
        std::vector<float> values(5);
        layer.read_full(Weight{}, values);
        CHECK(values == std::vector<float>{30, 31, 32, 33, 34});
        // Where the last of the objects that a step consists of is missing, there is no such step.
        if (rank.rank() == 0) { CHECK(store.remove_file("bucket/run/step-00000003/manifest.json") == 0); }
        sk::barrier(rank.world());
        CHECK(sk::checkpoint::latest(rank, "bucket/run", &store)->step == 2);
    });
    std::vector<std::string> names;
    CHECK(store.list("bucket/run", names) == 0);
    CHECK(names == std::vector<std::string>{"step-00000002", "step-00000003"});
}

TEST_CASE("keep_every: multiples stay besides the newest") {
    const Folder folder;
    const std::string run = folder.file("run");
    for (std::uint64_t step = 0; step <= 11; ++step) { save(run, step, {.keep = 2, .keep_every = 4}); }
    CHECK(steps_in(run) == std::vector<std::uint64_t>{0, 4, 8, 10, 11});
    save(run, 12, {.keep = 2});
    CHECK(steps_in(run) == std::vector<std::uint64_t>{11, 12});
    for (const std::uint64_t step : {11U, 12U}) { CHECK(is_whole(run, step)); }
}

TEST_CASE("a run that goes back: later steps stay and are told, until roll_back removes them") {
    const Folder folder;
    const std::string run = folder.file("run");
    for (const std::uint64_t step : {100U, 4900U, 5000U}) { save(run, step); }
    const auto latest = [&] {
        std::uint64_t step = 0;
        sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) { step = sk::checkpoint::latest(rank, run)->step; });
        return step;
    };
    // Without it, what is saved next is not lost to keep either.
    save(run, 101, {.keep = 2});
    const auto told = save(run, 102, {.keep = 2});
    CHECK(says(told, "step-00005000", "a later step"));
    CHECK(steps_in(run) == std::vector<std::uint64_t>{101, 102, 4900, 5000});
    CHECK(latest() == 5000);

    write(step_path(run, 6000) + "/notes.txt", "mine");
    std::array<std::string, 2> paths;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        // Nothing goes before the step is there, and whole, and meant by every rank.
        const auto before = rank.rank() == 0 ? contents(run) : std::map<std::string, std::string>{};
        const std::string absent = thrown_message<sk::FileError>([&] { sk::checkpoint::roll_back(rank, run, 100); });
        CHECK(has(absent, "step-00000100"));
        CHECK(has(absent, "ENOENT"));
        const std::string differs =
            thrown_message<std::invalid_argument>([&] { sk::checkpoint::roll_back(rank, run, 101 + rank.rank()); });
        CHECK(has(differs, "roll_back: rank 0 means"));
        if (rank.rank() == 0) { CHECK(contents(run) == before); }
        const sk::checkpoint::Folder back = sk::checkpoint::roll_back(rank, run, 102);
        CHECK(back.step == 102);
        paths[rank.rank()] = back.path;
        if (rank.rank() == 0) { CHECK(says(back.skipped, "step-00006000", "nothing that a save has made")); }
    });
    CHECK(paths[0] == step_path(run, 102));
    CHECK(paths[1] == paths[0]);
    CHECK(steps_in(run) == std::vector<std::uint64_t>{101, 102, 6000});
    CHECK(latest() == 102);
    CHECK(is_whole(run, 102));
    // A link to a later step would still be found: refused before anything goes.
    save(folder.file("archive"), 5000);
    fs::create_directory_symlink(step_path(folder.file("archive"), 5000), step_path(run, 5000));
    save(run, 103);
    const std::string link = thrown_message<sk::FileError>(
        [&] { sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) { sk::checkpoint::roll_back(rank, run, 102); }); });
    CHECK(has(link, "step-00005000"));
    CHECK(has(link, "is a link"));
    CHECK(is_whole(run, 103));
    CHECK(is_whole(folder.file("archive"), 5000));
}

TEST_CASE(
    "where a file system has no locks, saves go on, and what a process left goes once it has ended for certain") {
    const Folder folder;
    for (const int error : {ENOSYS, ENOTSUP, ENOLCK, EINVAL}) {
        CAPTURE(error);
        const std::string run = folder.file("run" + std::to_string(error));
        Lacking files(error);
        save(run, 1, {.keep = 1, .files = &files});
        CHECK(is_whole(run, 1));
        // Killed within a save: nobody holds a lock, since there is none; the process is not there any more.
        in_child([&] {
            Killed dies(error);
            save(run, 2, {.files = &dies});
        });
        REQUIRE(names_in(run).size() == 2);
        save(run, 3, {.keep = 1, .files = &files});
        CHECK(names_in(run) == std::vector<std::string>{"step-00000003"});
        // One that may run still, of this process or on another machine, stays and is told.
        const std::string own = step_path(run, 4) + ".tmp-0123456789abcdef";
        const std::string other = step_path(run, 5) + ".tmp-0123456789abcdef";
        write(own + "/" + std::string(mark), sk::detail::SavingProcess::text());
        write(other + "/" + std::string(mark), "another-boot pid:[1] 1 1\n");
        const auto told = save(run, 6, {.keep = 1, .files = &files});
        CHECK(says(told, "step-00000004.tmp-", "may be under way"));
        CHECK(says(told, "step-00000005.tmp-", "may be under way"));
        CHECK(names_in(run).size() == 3);
        // With locks, nobody holds one.
        save(run, 7, {.keep = 1});
        CHECK(names_in(run) == std::vector<std::string>{"step-00000007"});
    }
    const std::string refused = thrown_message<sk::FileError>([&] {
        Lacking files(EIO);
        save(folder.file("broken"), 1, {.files = &files});
    });
    CHECK(has(refused, "cannot be locked"));
}

TEST_CASE("of a process that saves: it runs, has ended, or nobody knows") {
    using Process = sk::detail::SavingProcess;
    const std::string own = Process::text();
    CHECK_FALSE(Process::has_ended(own));
    const std::size_t begin = own.rfind(' ');
    const std::size_t number = own.rfind(' ', begin - 1);
    // Its number is another process' by now.
    CHECK(Process::has_ended(own.substr(0, begin) + " 1\n"));
    CHECK(Process::has_ended(own.substr(0, number) + " 999999999 5\n"));
    for (const std::string& unknown :
         {std::string(), std::string("\n"), own.substr(1), own.substr(0, own.size() - 1),
          own.substr(0, number) + "\n", own.substr(0, number) + " x 5\n", own.substr(0, number) + "  5\n",
          own.substr(0, number) + " 99999999999 5\n", "other" + own}) {
        CAPTURE(unknown);
        CHECK_FALSE(Process::has_ended(unknown));
    }
}

TEST_CASE("replace where two folders cannot be exchanged: one rename after the other") {
    const Folder folder;
    const std::string run = folder.file("run");
    save(run, 1);
    for (const int error : {EINVAL, ENOSYS, ENOTSUP}) {
        CAPTURE(error);
        Lacking files(0, error);
        write(step_path(run, 1) + "/old.txt", "");
        save(run, 1, {.replace = true, .files = &files});
        CHECK(is_whole(run, 1));
        CHECK_FALSE(fs::exists(step_path(run, 1) + "/old.txt"));
        CHECK(names_in(run) == std::vector<std::string>{"step-00000001"});
    }
    Lacking broken(0, EIO);
    const std::string refused =
        thrown_message<sk::FileError>([&] { save(run, 1, {.replace = true, .files = &broken}); });
    CHECK(has(refused, "cannot be replaced"));
    CHECK(is_whole(run, 1));
    CHECK(names_in(run) == std::vector<std::string>{"step-00000001"});
}

}  // namespace step_folders_test
