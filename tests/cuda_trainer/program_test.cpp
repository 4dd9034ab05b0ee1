// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
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
    words.insert(words.begin(), "cuda_trainer");
    const int status = run_trainer(static_cast<int>(words.size()), words.data(), out.get(), errors.get(), train);
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
            const Ended ended = started({"--text",  text, "--steps", "5", "--batch",  "8",  "--sequence", "4",
                                         "--width", "8",  "--heads", "2", "--layers", "1",  "--policy",   policy,
                                         "--clip",  "1",  "--every", "2", "--graph",  graph});
            CAPTURE(ended.errors);
            CHECK(ended.status == EXIT_SUCCESS);
            CHECK(ended.errors.empty());
            CHECK(contains(ended.out, "device memory of parameters, gradients and optimizer, each rank: "));
            CHECK(contains(ended.out, " bytes; " + std::string(policy) + " on 1 rank\n"));
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
    CHECK(contains(help.out, "--microbatches N"));
}

TEST_CASE("cuda_trainer: bad input is named, with what was expected") {
    const char* const text = real_text.c_str();
    CHECK(contains(refusal({}), "--text FILE is missing"));
    CHECK(contains(refusal({"--text", "/no/such/file"}), "expected a file that can be read"));
    CHECK(contains(refusal({"--steps", "0"}), "--steps '0': expected a whole number from 1"));
    CHECK(contains(refusal({"--lr", "-1"}), "--lr '-1': expected a finite number of at least 0"));
    CHECK(contains(refusal({"--graph", "maybe"}), "--graph 'maybe': expected off or on"));
    CHECK(contains(refusal({"--policy", "zero3"}), "--policy 'zero3': expected no_shard,"));
    CHECK(contains(refusal({"--text", text, "--heads", "3"}), "--heads 3: expected a divisor of --width 128"));
    CHECK(contains(refusal({"--text", text, "--sequence", "1000000"}), " bytes, expected at least 1000001"));
    CHECK(contains(refusal({"--text", text, "--policy", "hybrid_shard:2"}),
                   "--policy 'hybrid_shard:2': expected a group that divides the 1 data-parallel ranks"));
    CHECK(contains(refusal({"--text", text, "--batch", "10", "--microbatches", "4"}),
                   "--batch 10: expected a multiple of 1 ranks x 4 microbatches"));
    for (const std::vector<const char*>& beyond :
         {std::vector{"--policy", "full_shard"}, {"--clip", "1"}, {"--graph", "on"}, {"--schedule", "on"}}) {
        const Ended ended = started({"--text", text, beyond[0], beyond[1]}, before::train);
        CHECK(contains(ended.errors, std::string(beyond[0]) + ": this trainer has none, the one after it has"));
    }

    standin::reset();
    standin::set_device_count(0);
    const Ended without = started({"--text", text});
    CHECK(without.status == EXIT_FAILURE);
    CHECK(contains(without.errors, "cudaSetDevice: "));
    standin::reset();
}

}  // namespace program_test
