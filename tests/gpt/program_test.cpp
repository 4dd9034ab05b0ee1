// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../../examples/common/input_error.hpp"
#include "../../examples/common/output_file.hpp"
#include "../../examples/common/text_format.hpp"
#include "../../examples/train_gpt/allocation_counter.hpp"
#include "../../examples/train_gpt/program/data_order.hpp"
#include "../../examples/train_gpt/program/job.hpp"
#include "../../examples/train_gpt/program/progress.hpp"
#include "../../examples/train_gpt/program/report.hpp"
#include "../../examples/train_gpt/program/text.hpp"
#include "temporary_folder.hpp"

using namespace train_gpt;
namespace fs = std::filesystem;

namespace program_test {

using temporary_folder::Folder;

TEST_SUITE("gpt.program") {
    TEST_CASE("allocations are counted for the rank that made them, in every form, whoever frees them") {
        struct alignas(256) Wide {
            std::byte bytes[512];
        };
        CountedAllocations counted;
        const std::size_t before = counted.current_bytes();
        auto bytes = std::make_unique<std::byte[]>(1000);
        CHECK(counted.current_bytes() - before == 1000);
        auto wide = std::make_unique<Wide[]>(3);
        CHECK(reinterpret_cast<std::uintptr_t>(wide.get()) % 256 == 0);
        CHECK(counted.current_bytes() - before == 1000 + 3 * sizeof(Wide));
        void* quiet = ::operator new(10, std::nothrow);
        CHECK(counted.current_bytes() - before == 1010 + 3 * sizeof(Wide));
        ::operator delete(quiet, std::nothrow);
        CHECK(counted.allocations() == 3);
        const std::size_t peak = counted.peak_bytes();
        CHECK(peak == before + 1010 + 3 * sizeof(Wide));
        std::thread([moved = std::move(bytes)]() mutable {
            const CountedAllocations other;
            moved.reset();
            CHECK(other.current_bytes() == 0);
        }).join();
        wide.reset();
        CHECK(counted.peak_bytes() >= peak);
        const volatile std::size_t too_much = ~std::size_t{0} - 8;
        CHECK_THROWS_AS(static_cast<void>(::operator new(too_much)), std::bad_alloc);
    }

    TEST_CASE("the data order depends on seed, step and sequence number alone, and stays inside the text") {
        std::vector<Token> text(500);
        for (std::size_t i = 0; i < text.size(); ++i) { text[i] = static_cast<std::uint8_t>(i * 7); }
        const DataOrder order(text, 31, 5);
        std::vector<Token> whole(12 * 31);
        std::vector<Token> targets(12 * 31);
        const auto all = shardkit::cp::CausalChunks::of(31, 1, 0);
        order.fill(3, 0, 12, all, whole.data(), targets.data());
        for (std::size_t i = 0; i < 12; ++i) {
            for (std::size_t t = 0; t + 1 < 31; ++t) { CHECK(targets[i * 31 + t] == whole[i * 31 + t + 1]); }
            // In pieces, as ranks and microbatches take them.
            std::vector<Token> tokens(31);
            std::vector<Token> next(31);
            order.fill(3, i, 1, all, tokens.data(), next.data());
            CHECK(std::equal(tokens.begin(), tokens.end(), whole.begin() + static_cast<std::ptrdiff_t>(i * 31)));
        }
        // In chunks, as ranks of cp take them.
        const DataOrder even(text, 24, 5);
        std::vector<Token> both(2 * 24);
        std::vector<Token> next(2 * 24);
        even.fill(3, 0, 2, shardkit::cp::CausalChunks::of(24, 1, 0), both.data(), next.data());
        for (std::size_t r = 0; r < 3; ++r) {
            const auto part = shardkit::cp::CausalChunks::of(24, 3, r);
            std::vector<Token> tokens(2 * 8);
            std::vector<Token> follow(2 * 8);
            even.fill(3, 0, 2, part, tokens.data(), follow.data());
            for (std::size_t i = 0; i < 16; ++i) {
                CHECK(tokens[i] == both[i / 8 * 24 + part.position(i % 8)]);
                CHECK(follow[i] == next[i / 8 * 24 + part.position(i % 8)]);
            }
        }
        std::size_t largest = 0;
        for (std::size_t step = 0; step < 2000; ++step) { largest = std::max(largest, order.start(step, 0)); }
        CHECK(largest + 31 < text.size());
        CHECK(largest > 440);
        CHECK(DataOrder(text, 31, 6).start(3, 0) != order.start(3, 0));
        const DataOrder shortest(std::span<const Token>(text.data(), 32), 31, 5);
        CHECK(shortest.start(9, 9) == 0);
    }

    TEST_CASE("text: the repository's own by default; missing, empty and short files are refused by name") {
        CHECK(read_text({}).tokens.size() > 100'000);
        const Folder folder;
        Options options;
        options.model.sequence = 8;
        const auto message = [&](const std::string& file) -> std::string {
            options.text = file;
            try {
                read_text(options);
            } catch (const program::InputError& error) { return error.what(); }
            return "no error";
        };
        std::ofstream(folder.file("empty")).flush();
        std::ofstream(folder.file("short")) << "12345678";
        std::ofstream(folder.file("enough")) << "123456789";
        CHECK(message(folder.file("missing")).find("missing") != std::string::npos);
        CHECK(message(folder.file("missing")).find("can be read") != std::string::npos);
        CHECK(message(folder.file("")).find("folder") != std::string::npos);
        CHECK(message(folder.file("empty")).find("0 bytes: expected at least 9") != std::string::npos);
        CHECK(message(folder.file("short")).find("8 bytes: expected at least 9") != std::string::npos);
        CHECK(message(folder.file("enough")) == "no error");
        CHECK(read_text(options).tokens.size() == 9);
        options.model.vocabulary = '7';
        CHECK(message(folder.file("enough")).find("' has 55 at 6: expected tokens below --vocabulary 55") !=
              std::string::npos);
    }

    TEST_CASE(
        "tokens: read as llm.c writes them; what is cut, too long or another file is refused with its numbers") {
        const Folder folder;
        Options options;
        options.tokens = folder.file("tokens.bin");
        options.model = {8, 4, 128, 4, HeadKind::tied, 0, 2, 0, gpt2_vocabulary};
        std::vector<std::uint32_t> header(256);
        header[0] = 20'240'520;
        header[1] = 1;
        std::vector<Token> tokens(1000);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            tokens[i] = static_cast<Token>(i * 7919 % gpt2_vocabulary);
        }
        const auto write = [&](std::size_t count, std::size_t bytes_behind) {
            header[2] = static_cast<std::uint32_t>(count);
            std::string bytes(reinterpret_cast<const char*>(header.data()), 1024);
            bytes.append(reinterpret_cast<const char*>(tokens.data()), bytes_behind);
            std::ofstream(options.tokens, std::ios::binary) << bytes;
        };
        const auto message = [&]() -> std::string {
            try {
                read_text(options);
            } catch (const program::InputError& error) { return error.what(); }
            return "no error";
        };
        const std::string file = "--tokens '" + options.tokens + "'";
        CHECK(message().find(file + ": expected a file that can be read") == 0);
        write(1000, 2000);
        CHECK(read_text(options).tokens == tokens);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{1998}, std::size_t{1999}}) {
            write(1000, bytes);
            CHECK(message() == file + " has " + std::to_string(1024 + bytes) +
                                   " bytes: expected 3024 for the 1000 tokens that its header counts");
        }
        write(999, 2000);
        CHECK(message() == file + " has 3024 bytes: expected 3022 for the 999 tokens that its header counts");
        write(8, 16);
        CHECK(message() == file + " has 8 tokens: expected at least 9, one more than --sequence");
        write(1000, 2000);
        options.model.vocabulary = 50'000;
        CHECK(message() == file + " has 50210 at 165: expected tokens below --vocabulary 50000");
        header[1] = 7;
        write(1000, 2000);
        CHECK(message() == file + " has version 7: expected 1, as llm.c writes it for GPT-2");
        header[0] = 20'240'801;
        write(1000, 2000);
        CHECK(message() == file + " has the mark 20240801: expected 20240520, as llm.c writes it for GPT-2");
        std::ofstream(options.tokens, std::ios::binary) << std::string(1023, ' ');
        CHECK(message() == file + ": expected a header of 1024 bytes, as llm.c writes it");
    }

    TEST_CASE("result files: an unwritable one is refused at once, an unwritten one leaves nothing behind") {
        const Folder folder;
        CHECK_THROWS_WITH_AS(program::OutputFile("--json", folder.file("no/such/folder.json")),
                             doctest::Contains("--json '"), program::InputError);
        CHECK_THROWS_WITH_AS(program::OutputFile("--plot", folder.file("")), doctest::Contains("can be written"),
                             program::InputError);
        const program::OutputFile unused("--json", folder.file("a.json"));
        CHECK_FALSE(fs::exists(folder.file("a.json")));
        std::ofstream(folder.file("old.json")) << "old";
        const program::OutputFile old("--json", folder.file("old.json"));
        CHECK(fs::file_size(folder.file("old.json")) == 3);
        old.write("new!");
        CHECK(fs::file_size(folder.file("old.json")) == 4);
        CHECK_FALSE(program::OutputFile("--json", "").wanted());
    }

    TEST_CASE("times read as minutes or hours, and bytes that a terminal would obey are spelled out") {
        CHECK(program::duration_text(9.4) == "0:09");
        CHECK(program::duration_text(3599) == "59:59");
        CHECK(program::duration_text(8 * 3600 + 33 * 60 + 29) == "8:33:29");
        CHECK(program::printable("a\n\tb\x1b[2J\xc2\x9b\r") == "a\n\tb\\x1b[2J\\xc2\\x9b\\x0d");
    }

    TEST_CASE("progress: the ends of a run and each twentieth of it are shown") {
        Options options;
        options.steps = 1000;
        std::FILE* const out = std::tmpfile();
        REQUIRE(out != nullptr);
        Progress progress(options, out, 7);
        for (const std::size_t step : {7U, 8U, 49U, 50U, 999U}) {
            progress.after_step({step, 5.5, step == 50 ? std::nullopt : std::optional(1.0), 1024.0 * 1000});
        }
        std::rewind(out);
        std::string text(10'000, '\0');
        text.resize(std::fread(text.data(), 1, text.size(), out));
        std::fclose(out);
        CHECK(text ==
              "step 8/1000  loss 5.5000  norm 1.000  1,024,000 tokens/s  0:01 left\n"
              "step 51/1000  loss 5.5000  1,024,000 tokens/s  0:01 left\n"
              "step 1000/1000  loss 5.5000  norm 1.000  1,024,000 tokens/s  0:00 left\n");
    }

    TEST_CASE("the JSON object has every field, and a sample has as many bytes as asked for on every mesh") {
        std::vector<Token> text(300, 'x');
        for (std::size_t i = 0; i < text.size(); i += 3) { text[i] = 'y'; }
        Options options;
        options.model = {8, 1, 8, 2, HeadKind::tied};
        options.batch = 4;
        options.steps = 3;
        options.sample = 20;
        const Results results = train({options, text});
        CHECK(results.sample.size() == 20);
        Options alone = options;
        alone.mesh = {1, 1, 1};
        CHECK(train({alone, text}).sample.size() == 20);

        const PlanSummary plan = make_plan(options);
        const auto object = nlohmann::json::parse(json_report(options, plan, results));
        CHECK_FALSE(object.at("interrupted"));
        CHECK(object.at("policy") == "full_shard");
        CHECK(object.at("mesh") == "2x1x1");
        CHECK(object.at("engine") == "threads");
        CHECK(object.at("dtype") == "fp32");
        CHECK(object.at("optimizer") == "adamw");
        CHECK(object.at("world") == 2);
        CHECK(object.at("steps") == 3);
        REQUIRE(results.losses.size() == 3);
        REQUIRE(results.grad_norms.size() == 3);
        CHECK(object.at("losses") == results.losses);
        CHECK(object.at("grad_norms") == results.grad_norms);
        // JSON has no infinity and no NaN: they would be null, which is no number.
        CHECK(object.at("tokens_per_second").get<double>() > 0);
        CHECK(object.at("tokens_per_second") == results.tokens_per_second);
        CHECK(object.at("planned_bytes_per_rank") == plan.bytes_per_rank());
        CHECK(object.at("peak_bytes_per_rank") == results.peak_bytes_per_rank);
        // Half of the parameters, their gradients and two states in fp32, and more.
        CHECK(object.at("planned_bytes_per_rank") > object.at("parameters").get<std::size_t>() / 2 * 4 * 4);
        CHECK(object.at("peak_bytes_per_rank") > object.at("parameters").get<std::size_t>() / 2 * 4 * 4);
        CHECK(object.at("parameters") == (256 + 8) * 8 + 12 * 64 + 13 * 8 + 16);
        const auto& over_dp = object.at("collectives_by_axes").at("dp");
        CHECK(over_dp.at("all_gather").at("count") == 2 + 2 + 1);
        CHECK(over_dp.at("reduce_scatter").at("count") == 3);
        CHECK(over_dp.at("reduce_scatter").at("bytes").get<std::uint64_t>() > 0);
    }
}

}  // namespace program_test
