// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "../../examples/cuda_trainer/program.hpp"
#include "trainer_ranks.hpp"

namespace program_test {

namespace {

using namespace trainer_ranks;

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
struct ClosePipe {
    void operator()(std::FILE* pipe) const { pclose(pipe); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string contents(std::FILE* file) {
    std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    const std::size_t count = std::fread(text.data(), 1, text.size(), file);
    return text.substr(0, count);
}

struct Ended {
    int status;
    std::string out, errors;
};
Ended started(std::vector<const char*> words, const Train& train = sharded()) {
    const File out(std::tmpfile());
    const File errors(std::tmpfile());
    const int status = run_trainer(words, out.get(), errors.get(), train);
    return {status, contents(out.get()), contents(errors.get())};
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string refusal(std::vector<const char*> words) {
    standin::reset();
    const Ended ended = started(std::move(words));
    CHECK(ended.status == 2);
    CHECK(ended.out.empty());
    return ended.errors;
}
}  // namespace

TEST_CASE("cuda_trainer: the program trains and prints") {
    standin::reset();
    const char* const text = real_text.c_str();
    for (const char* const policy :
         {"no_shard", "full_shard", "hybrid_shard:1", "hybrid_optimizer:1", "secondary_shard:1"}) {
        std::string plain;
        for (const char* const graph : {"off", "on"}) {
            const Ended ended =
                started({"--text",   text, "--steps",  "5",    "--batch", "8", "--context", "4", "--width", "8",
                         "--layers", "1",  "--policy", policy, "--clip",  "1", "--every",   "2", "--graph", graph});
            CAPTURE(ended.errors);
            CHECK(ended.status == EXIT_SUCCESS);
            CHECK(ended.errors.empty());
            CHECK(contains(ended.out, "model: 12080 parameters; " + std::string(policy) + " on 1 rank\n"));
            CHECK(contains(ended.out, "device memory of parameters, gradients and optimizer, each rank: "));
            CHECK(contains(ended.out, "step 1/5  loss 5."));
            CHECK(!contains(ended.out, "step 2/5"));
            CHECK(contains(ended.out, "step 5/5  loss 5."));
            CHECK(contains(ended.out, " last\n"));
            if (plain.empty()) { plain = ended.out; }
            CHECK(ended.out == plain);
            CHECK(standin::live() == standin::Live{});
        }
        CHECK(standin::calls("cudaGraphLaunch") == 4);
        standin::reset_calls();
    }
    host_functions::Kept::all().forget();
    const Ended help = started({"--help"});
    CHECK(help.status == EXIT_SUCCESS);
    CHECK(help.out == usage);
}

TEST_CASE("cuda_trainer: bad input is named, with what was expected") {
    const char* const text = real_text.c_str();
    CHECK(contains(refusal({}), "--text FILE is missing"));
    CHECK(contains(refusal({"--text"}), "--text is the last word"));
    CHECK(contains(refusal({"--text", "/no/such/file"}), "expected a file that can be read"));
    CHECK(contains(refusal({"--text", "/"}), "this is a folder"));
    CHECK(contains(refusal({"--speed", "3"}), "unknown flag --speed"));
    CHECK(contains(refusal({"--steps", "0"}), "--steps '0': expected a whole number from 1"));
    CHECK(contains(refusal({"--steps", "3x"}), "--steps '3x': expected a whole number"));
    CHECK(contains(refusal({"--width", "-1"}), "--width '-1': expected a whole number from 1 to 65536"));
    CHECK(contains(refusal({"--lr", "nan"}), "--lr 'nan': expected a finite number of at least 0"));
    CHECK(contains(refusal({"--lr", "-1"}), "--lr '-1': expected a finite number of at least 0"));
    CHECK(contains(refusal({"--schedule", "auto"}), "--schedule 'auto': expected off or on"));
    CHECK(contains(refusal({"--graph", "maybe"}), "--graph 'maybe': expected off or on"));
    CHECK(contains(refusal({"--offload", "disk"}), "--offload 'disk': expected none, states or update"));
    CHECK(contains(refusal({"--policy", "zero3"}), "--policy 'zero3': expected no_shard,"));
    CHECK(contains(refusal({"--policy", "hybrid_shard:0"}), "--policy 'hybrid_shard:0': expected no_shard, "));
    CHECK(contains(refusal({"--text", text, "--policy", "hybrid_shard:2"}),
                   "--policy 'hybrid_shard:2': expected a group that divides the 1 data-parallel ranks"));
    CHECK(contains(refusal({"--text", text, "--batch", "10", "--microbatches", "4"}),
                   "--batch 10: expected a multiple of 1 ranks x 4 microbatches"));
    const std::string short_text = std::string(SHARDKIT_GOLDEN_DIR) + "/../list.txt";
    Options long_context;
    long_context.text = short_text;
    long_context.shape.context = 1000000;
    CHECK_THROWS_AS(read_text(long_context), program::InputError);

    standin::reset();
    const Ended clipping = started({"--text", text, "--clip", "1"}, before::train);
    CHECK(contains(clipping.errors, "--clip: this trainer does not clip"));
    const Ended sharding = started({"--text", text, "--policy", "full_shard"}, before::train);
    CHECK(contains(sharding.errors, "--policy: this trainer has none"));
    const Ended capturing = started({"--text", text, "--graph", "on"}, before::train);
    CHECK(contains(capturing.errors, "--graph on: this trainer captures nothing"));
    const Ended offloading = started({"--text", text, "--offload", "states"}, before::train);
    CHECK(contains(offloading.errors, "--offload: this trainer keeps its states on the GPU"));
    const Ended scheduling = started({"--text", text, "--schedule", "on"}, before::train);
    CHECK(contains(scheduling.errors, "--schedule on: this trainer has none"));

    standin::reset();
    standin::set_device_count(0);
    const Ended without = started({"--text", text});
    CHECK(without.status == EXIT_FAILURE);
    CHECK(contains(without.errors, "cudaSetDevice: "));
    standin::reset();
}

TEST_CASE("cuda_trainer: the README's numbers of lines are those of its commands") {
    const std::string folder = std::string(SHARDKIT_GOLDEN_DIR) + "/../../examples/cuda_trainer/";
    const auto lines = [&](const char* side) {
        const std::string command =
            "diff '" + folder + "before.hpp' '" + folder + "after.hpp' | grep -c '^" + side + "'";
        const std::unique_ptr<std::FILE, ClosePipe> pipe(popen(command.c_str(), "r"));
        std::size_t count = 0;
        CHECK(std::fscanf(pipe.get(), "%zu", &count) == 1);
        return std::to_string(count);
    };
    std::ifstream readme(folder + "README.md");
    const std::string page((std::istreambuf_iterator<char>(readme)), std::istreambuf_iterator<char>());
    CHECK(contains(page, "\n" + lines("<") + " lines go, " + lines(">") + " come;"));
}

}  // namespace program_test
