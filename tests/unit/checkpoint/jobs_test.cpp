// SPDX-License-Identifier: Apache-2.0
// Processes that are killed within a save, and several that save into one folder.
#include <shardkit/checkpoint.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include <shardkit/backend/self/run.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/sharded/sharded.hpp>

#include "killed_files.hpp"
#include "temporary_folder.hpp"
#include "unit/last_words.hpp"
#include "unit/thrown_message.hpp"

namespace jobs_test {

namespace {

namespace sk = shardkit;
namespace fs = std::filesystem;
using temporary_folder::Folder;

struct Rows : sk::Param<"rows", float, 3001> {};
struct Square : sk::Param<"square", float, 40, 40> {};
struct Twin : sk::Param<"twin", float, 40, 40> {};
using Layer = sk::Sharded<Rows, sk::FullShard>;

/// Element i of step s is 10,000 s + i.
template <class Rank>
void save(Rank& rank, const std::string& folder, std::uint64_t step, sk::checkpoint::FileCalls& files) {
    Layer layer(rank, "layer");
    layer.initialize(
        [&](std::string_view, std::string_view, std::uint64_t i) { return static_cast<double>(10000 * step + i); });
    const sk::Model model{layer};
    sk::checkpoint::save(rank, folder, step, sk::checkpoint::State{model}, {.files = &files});
}
/// On two threads.
void save_on_two(const std::string& folder, std::uint64_t step, sk::checkpoint::FileCalls& files) {
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) { save(rank, folder, step, files); });
}
/// The newest step, every byte of which is that step's; 0 where it is not.
std::uint64_t newest(const std::string& folder) {
    std::uint64_t step = 0;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        const auto found = sk::checkpoint::latest(rank, folder);
        if (!found) { return; }
        Layer layer(rank, "layer");
        const sk::Model model{layer};
        sk::checkpoint::load(rank, found->path, sk::checkpoint::State{model});
        std::vector<float> values(3001);
        layer.read_full(Rows{}, values);
        step = found->step;
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (values[i] != static_cast<float>(10000 * found->step + i)) { step = 0; }
        }
    });
    return step;
}
std::size_t temporary(const std::string& folder) {
    return static_cast<std::size_t>(std::count_if(fs::directory_iterator(folder), {}, [](const auto& entry) {
        return entry.path().filename().string().find(".tmp-") != std::string::npos;
    }));
}

/// f in a process of its own.
template <class F>
pid_t start(const F& f) {
    const pid_t child = ::fork();
    if (child == 0) {
        int code = 0;
        try {
            f();
        } catch (const sk::FileError& error) {
            const std::string_view said = error.what();
            // Because the name was there before, or as it was taken.
            const bool there = said.find("exists") != said.npos || said.find("EEXIST") != said.npos;
            code = there ? 3 : 2;
        } catch (...) { code = 1; }
        ::_exit(code);
    }
    return child;
}
int status_of(pid_t child) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return status;
}

/// Another job sees a folder that is made and not locked yet.
class SlowToLock : public sk::checkpoint::PosixFiles {
  public:
    int make_folder(const std::string& path) override {
        made_ = path;
        return PosixFiles::make_folder(path);
    }
    int lock(const std::string& file, int& held) override {
        if (file.starts_with(made_ + "/")) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }
        return PosixFiles::lock(file, held);
    }

  private:
    std::string made_;  // by rank 0 alone
};

}  // namespace

TEST_CASE("a process that is killed after any of its file calls leaves the old step or the new one, whole") {
    const Folder folder;
    const std::string run = folder.file("run");
    sk::checkpoint::PosixFiles sound;
    save_on_two(run, 1, sound);
    std::size_t old_ones = 0;
    std::size_t new_ones = 0;
    for (std::size_t call = 0;; ++call) {
        CAPTURE(call);
        const int status = status_of(start([&] {
            killed_files::Killed files(call);
            save_on_two(run, 2, files);
        }));
        const std::uint64_t found = newest(run);
        REQUIRE((found == 1 || found == 2));
        if (!WIFSIGNALED(status)) {
            CHECK(WEXITSTATUS(status) == 0);
            CHECK(found == 2);
            break;
        }
        CHECK(WTERMSIG(status) == SIGKILL);
        ++(found == 1 ? old_ones : new_ones);
        fs::remove_all(run + "/step-00000002");
    }
    CHECK(old_ones > 8);
    CHECK(new_ones >= 1);
    // What the killed ones left is gone with the last save.
    CHECK(temporary(run) == 0);
}

TEST_CASE("two jobs save into one folder at once: every step is there, and one of two equal ones is refused") {
    const Folder folder;
    const std::string run = folder.file("run");
    fs::create_directories(run);
    constexpr std::uint64_t steps = 12;
    const auto job = [&](std::uint64_t first) {
        return start([&, first] {
            SlowToLock files;
            for (std::uint64_t step = first; step <= steps; step += 2) {
                sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) { save(rank, run, step, files); });
            }
        });
    };
    const std::array jobs{job(1), job(2)};
    for (const pid_t each : jobs) { CHECK(status_of(each) == 0); }
    CHECK(temporary(run) == 0);
    for (std::uint64_t step = steps; step > 0; --step) {
        REQUIRE(newest(run) == step);
        fs::remove_all(run + (step < 10 ? "/step-0000000" : "/step-000000") + std::to_string(step));
    }
    for (std::size_t repeat = 0; repeat < 5; ++repeat) {
        fs::remove_all(run);
        fs::create_directories(run);
        const auto same = [&] {
            return start([&] {
                SlowToLock files;
                save_on_two(run, 5, files);
            });
        };
        const std::array both{same(), same()};
        std::array<int, 2> codes{};
        for (std::size_t i = 0; i < 2; ++i) { codes[i] = WEXITSTATUS(status_of(both[i])); }
        std::sort(codes.begin(), codes.end());
        CHECK(codes[0] == 0);
        CHECK(codes[1] == 3);
        CHECK(newest(run) == 5);
        CHECK(temporary(run) == 0);
    }
}

TEST_CASE("a folder that is a file, one that nobody may write, and an index that leads out of its folder") {
    const Folder folder;
    std::ofstream(folder.file("file")) << "text";
    const auto refused = [&](const std::string& path) {
        std::array<std::string, 2> said;
        sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
            sk::checkpoint::PosixFiles files;
            said[rank.rank()] = thrown_message<sk::FileError>([&] { save(rank, path, 1, files); });
        });
        CHECK(said[0] == said[1]);
        return said[0];
    };
    const std::string of_file = refused(folder.file("file"));
    CHECK(of_file.find(folder.file("file")) != std::string::npos);
    CHECK(of_file.find("ENOTDIR") != std::string::npos);
    CHECK(refused(folder.file("file/run")).find("ENOTDIR") != std::string::npos);
    // Nobody may, not even root.
    CHECK(refused("/proc/self/run").find("/proc/self/run") != std::string::npos);

    fs::create_directories(folder.file("model"));
    std::ofstream(folder.file("model/model.safetensors.index.json"))
        << R"({"metadata":{"total_size":4},"weight_map":{"layer.rows":"../outside.safetensors"}})";
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        Layer layer(rank, "layer");
        const sk::Model model{layer};
        const std::string said =
            thrown_message<sk::FileError>([&] { sk::checkpoint::load_model(rank, folder.file("model"), model); });
        CHECK(said.find("index.json") != std::string::npos);
        CHECK(said.find("outside.safetensors") == std::string::npos);  // never opened
    });
}

TEST_CASE("ranks that commit or load different things find out, and a save is committed once") {
    const Folder folder;
    const std::string run = folder.file("run");
    sk::checkpoint::PosixFiles files;
    save_on_two(run, 1, files);
    save_on_two(run, 2, files);
    std::array<std::string, 2> committed;
    std::array<std::string, 2> loaded;
    std::array<std::string, 2> partly;
    std::array<std::string, 2> twice;
    std::array<std::string, 2> swapped;
    std::array<std::string, 2> transposed;
    sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
        Layer a(rank, "a");
        Layer b(rank, "b");
        const sk::Model model_a{a};
        const sk::Model model_b{b};
        const std::size_t own = rank.rank();
        committed[own] = thrown_message<std::invalid_argument>([&] {
            sk::checkpoint::PendingSave first =
                sk::checkpoint::begin_save(rank, folder.file("x"), 3, sk::checkpoint::State{model_a});
            sk::checkpoint::PendingSave second =
                sk::checkpoint::begin_save(rank, folder.file("y"), 3, sk::checkpoint::State{model_b});
            std::move(own == 0 ? first : second).commit();
        });
        Layer layer(rank, "layer");
        const sk::Model model{layer};
        const sk::checkpoint::State state{model};
        loaded[own] = thrown_message<std::invalid_argument>(
            [&] { sk::checkpoint::load(rank, run + (own == 0 ? "/step-00000001" : "/step-00000002"), state); });
        partly[own] = thrown_message<std::invalid_argument>(
            [&] { sk::checkpoint::load(rank, run + "/step-00000001", state, {.subset = own == 1}); });
        // Names and orders that every file has: what each rank would read is there, and of the same shape.
        sk::Sharded<sk::Params<Square, Twin>, sk::FullShard> pair(rank, "pair");
        const sk::Model two{pair};
        sk::checkpoint::save(rank, folder.file("pair"), 1, sk::checkpoint::State{two});
        const auto named = [&](bool twin_first, bool turned) -> sk::checkpoint::TensorNames {
            return [=](std::string_view, const sk::ParameterRecord& parameter) {
                const std::string name = (parameter.name == Square::name) == twin_first ? "pair.twin" : "pair.square";
                return turned ? sk::checkpoint::stored_transposed(name, parameter.shape)
                              : sk::checkpoint::stored(name, parameter.shape);
            };
        };
        const std::string model_of_two = folder.file("pair/step-00000001");
        swapped[own] = thrown_message<std::invalid_argument>(
            [&] { sk::checkpoint::load_model(rank, model_of_two, two, {.names = named(own == 1, false)}); });
        transposed[own] = thrown_message<std::invalid_argument>(
            [&] { sk::checkpoint::load_model(rank, model_of_two, two, {.names = named(false, own == 1)}); });
        twice[own] = thrown_message<sk::UsageError>([&] {
            sk::checkpoint::PendingSave pending = sk::checkpoint::begin_save(rank, folder.file("z"), 4, state);
            std::move(pending).commit();
            std::move(pending).commit();  // NOLINT(bugprone-use-after-move)
        });
    });
    CHECK(committed[0] == committed[1]);
    CHECK(committed[0].find("commit: rank 0 means '" + folder.file("x/step-00000003") + "', rank 1 '" +
                            folder.file("y/step-00000003")) != std::string::npos);
    CHECK(temporary(folder.file("x")) + temporary(folder.file("y")) == 0);
    CHECK(loaded[0] == loaded[1]);
    CHECK(loaded[0].find("load: rank 0 means '" + run + "/step-00000001/") != std::string::npos);
    CHECK(loaded[0].find("rank 1 '" + run + "/step-00000002/") != std::string::npos);
    CHECK(partly[0] == partly[1]);
    CHECK(partly[0].find(", a subset'") != std::string::npos);
    CHECK(swapped[0] == swapped[1]);
    CHECK(swapped[0].find("2 tensors, first 'pair.square'', rank 1 '") != std::string::npos);
    CHECK(swapped[0].find("with other names") == std::string::npos);
    CHECK(swapped[0].find("first 'pair.twin''") != std::string::npos);
    CHECK(transposed[0] == transposed[1]);
    CHECK(transposed[0].find("load: rank 0 means '") != std::string::npos);
    CHECK(transposed[0].find("first 'pair.square'' with other names or orders: expected") != std::string::npos);
    CHECK(twice[0].find("PendingSave: commit of what was committed, or moved from") != std::string::npos);
    CHECK(fs::exists(folder.file("z/step-00000004/manifest.json")));
}

/// No page can be written: the mark of a save can.
class Full : public sk::checkpoint::PosixFiles {
  public:
    int write(int file, std::uint64_t at, std::span<const std::byte> bytes, std::size_t& written) override {
        if (bytes.size() < 4096) { return PosixFiles::write(file, at, bytes, written); }
        written = 0;
        return ENOSPC;
    }
};

TEST_CASE(
    "a pending save that outlives what it reads ends the program; one that failed and that nobody asked is said") {
    const Folder folder;
    const std::string run = folder.file("run");
    const auto words = [&](const auto& f) {
        return last_words([&] {
            sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
                Layer layer(rank, "layer");
                layer.initialize([](auto, auto, auto) { return 1.0; });
                f(rank, sk::Model{layer});
            });
        });
    };
    CHECK(has(
        words([&](auto& rank, const auto& model) {
            std::optional optimizer(sk::AdamW{model});
            const auto pending = sk::checkpoint::begin_save(rank, run, 1, sk::checkpoint::State{model, *optimizer});
            optimizer.reset();
        }),
        "shardkit: an optimizer ended or was assigned to while a save of its states is pending"));
    CHECK(has(
        words([&](auto& rank, const auto& model) {
            sk::AdamW optimizer{model};
            const auto pending = sk::checkpoint::begin_save(rank, run, 2, sk::checkpoint::State{model, optimizer});
            optimizer = sk::AdamW{model};
        }),
        "shardkit: an optimizer ended or was assigned to while a save of its states is pending"));
    // Moved, it has the same memory, and a copy needs none of it.
    CHECK(words([&](auto& rank, const auto& model) {
              std::optional optimizer(sk::AdamW{model});
              auto pending = sk::checkpoint::begin_save(rank, run, 3, sk::checkpoint::State{model, *optimizer});
              auto moved = std::move(*optimizer);
              std::move(pending).commit();
              sk::checkpoint::State state{model, moved};
              sk::checkpoint::load(rank, run + "/step-00000003", state);
              pending = sk::checkpoint::begin_save(rank, run, 4, state, {.staging = sk::checkpoint::Staging::copy});
              optimizer.reset();
              moved = sk::AdamW{model};
              std::move(pending).commit();
          }) == "it lives");
    CHECK(fs::exists(run + "/step-00000004/manifest.json"));
    std::optional<sk::checkpoint::PendingSave> carried;
    CHECK(has(words([&](auto& rank, const auto& model) {
                  carried = sk::checkpoint::begin_save(rank, run, 5, sk::checkpoint::State{model},
                                                       {.staging = sk::checkpoint::Staging::copy});
              }),
              "ended before 'a save in " + run + "' made with it"));
    Full full;
    const std::string said = words([&](auto& rank, const auto& model) {
        const auto dropped = sk::checkpoint::begin_save(rank, run, 6, sk::checkpoint::State{model}, {.files = &full});
    });
    CHECK(has(said, "shardkit: the end of rank 0: '" + run + "/step-00000006.tmp-"));
    CHECK(has(said, "ENOSPC"));
    CHECK(words([&](auto& rank, const auto& model) {
              static_cast<void>(thrown_message<sk::FileError>([&] {
                  sk::checkpoint::begin_save(rank, run, 6, sk::checkpoint::State{model}, {.files = &full}).commit();
              }));
          }) == "it lives");
    CHECK_FALSE(fs::exists(run + "/step-00000006"));
}

}  // namespace jobs_test
