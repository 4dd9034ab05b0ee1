// SPDX-License-Identifier: Apache-2.0
// What is left beside a model's single file when the process that saves it is killed.
#include <shardkit/checkpoint/save_model.hpp>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint/safetensors_file.hpp>
#include <shardkit/checkpoint/save_mark.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "killed_files.hpp"
#include "temporary_folder.hpp"

namespace save_model_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::Folder;

struct Weight : sk::Param<"weight", float, 6, 5> {};

void save(const std::string& path, double value, sk::checkpoint::FileCalls& files) {
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
        layer.initialize([&](auto, auto, std::uint64_t) { return value; });
        sk::checkpoint::save_model(rank, path, sk::Model{layer}, {.replace = true, .files = &files});
    });
}
double saved(const std::string& path) { return sk::safetensors::File(path).read<double>("layer.weight").front(); }
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) { names.push_back(entry.path().filename()); }
    return names;
}
/// Whether a process that makes its n-th call on a file no more, of `Files`, was killed there.
template <class Files, class... More>
bool dies(const std::string& path, double value, std::size_t call, More... more) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        Files files(call, more...);
        try {
            save(path, value, files);
        } catch (...) { ::_exit(1); }
        ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status)) { CHECK(WEXITSTATUS(status) == 0); }
    return WIFSIGNALED(status);
}

/// Where no file can be locked.
class NoLocks : public sk::checkpoint::PosixFiles {
  public:
    int lock(const std::string& /*file*/, int& /*held*/) override { return ENOLCK; }
};
class KilledWithoutLocks : public killed_files::Killed {
  public:
    using Killed::Killed;
    int lock(const std::string& /*file*/, int& /*held*/) override { return ENOLCK; }
};

}  // namespace

TEST_CASE(
    "a process that is killed within save_model leaves the old file or the new one, and nothing that the next save "
    "leaves") {
    const auto check = [](auto dies_at, sk::checkpoint::FileCalls& files, std::size_t unknown) {
        const Folder folder;
        const std::string path = folder.file("model.safetensors");
        save(path, 1, files);
        std::size_t left = 0;
        for (std::size_t call = 0; dies_at(path, 2.0, call); ++call) {
            CAPTURE(call);
            const double there = saved(path);
            CHECK((there == 1 || there == 2));
            left += names_in(folder.path()).size() > 1 ? std::size_t{1} : 0;
            save(path, 1, files);
            CHECK(saved(path) == 1);
            for (const std::string& name : names_in(folder.path())) {
                // Killed before it had said who it is: without locks nobody knows whether it runs.
                const std::string mark = folder.file(name) + "/uncommitted.shardkit";
                if (!fs::exists(mark) || fs::file_size(mark) > 0) { continue; }
                fs::remove_all(folder.file(name));
                --unknown;
            }
            CHECK(names_in(folder.path()).size() == 1);
        }
        CHECK(unknown == 0);
        CHECK(saved(path) == 2);
        CHECK(left > 4);
    };
    sk::checkpoint::PosixFiles sound;
    check([](const std::string& path, double value,
             std::size_t call) { return dies<killed_files::Killed>(path, value, call); },
          sound, 0);
    NoLocks none;
    check([](const std::string& path, double value,
             std::size_t call) { return dies<KilledWithoutLocks>(path, value, call); },
          none, 1);
}

TEST_CASE("what other saves of the file are at, and what is of another file or no save's, stays") {
    const Folder folder;
    const std::string path = folder.file("model.safetensors");
    sk::checkpoint::PosixFiles files;
    const std::string token = ".tmp-0123456789abcdef";
    const auto make = [&](const std::string& name, const std::string& file, const std::string& text) {
        fs::create_directory(folder.file(name));
        std::ofstream(folder.file(name) + "/" + file) << text;
        return folder.file(name) + "/" + file;
    };
    const std::string own = sk::detail::SavingProcess::text();
    const std::string mark_name = "uncommitted.shardkit";
    // Under way: locked. Of another file. Of no save. Without locks: of a process that runs.
    const std::string mark = make("model.safetensors" + token, mark_name, own);
    make("model.safetensors" + token, "model.safetensors", "half");
    make("other.safetensors" + token, mark_name, own);
    make("model.safetensors.tmp-notes", mark_name, own);
    make("model.safetensors.tmp-fedcba9876543210", "notes", "mine");
    make("model.safetensors" + token + "0", mark_name, own);
    int held = -1;
    REQUIRE(files.lock(mark, held) == 0);
    save(path, 1, files);
    CHECK(names_in(folder.path()).size() == 6);
    files.unlock(held);
    NoLocks none;
    save(path, 2, none);
    CHECK(names_in(folder.path()).size() == 6);
    save(path, 3, files);
    CHECK(names_in(folder.path()).size() == 5);
    CHECK(saved(path) == 3);
    CHECK_FALSE(fs::exists(mark));
}

}  // namespace save_model_test
