// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "../../examples/common/input_error.hpp"
#include "../../examples/train_gpt/model/initialise.hpp"
#include "../../examples/train_gpt/program/encoding.hpp"
#include "../../examples/train_gpt/program/text.hpp"
#include "temporary_folder.hpp"

using namespace train_gpt;
namespace fs = std::filesystem;

namespace encoding_test {

using temporary_folder::Folder;

TEST_SUITE("gpt.encoding") {
    TEST_CASE("the tokens of tiktoken and tokenizers for the same merges, and back") {
        const char* const given = std::getenv("SHARDKIT_ENCODING_GOLDEN");
        const fs::path golden = given != nullptr ? fs::path(given) : fs::path(SHARDKIT_GOLDEN_DIR) / "encoding.json";
        const auto file = nlohmann::json::parse(std::ifstream(golden));
        std::ifstream merges(golden.parent_path() / file.at("merges").get<std::string>());
        const Encoding encoding(merges, "merges");
        CHECK(file.at("pairs").size() >= 27);
        for (const auto& pair : file.at("pairs")) {
            const auto text = pair.at("text").get<std::string>();
            CAPTURE(text);
            const auto tokens = encoding.encode(text, "text");
            CHECK(tokens == pair.at("ids").get<std::vector<Token>>());
            CHECK(encoding.decode(tokens) == text);
        }
        // Any bytes are a text of bytes.
        std::string bytes;
        for (std::uint64_t i = 0; i < 2000; ++i) { bytes += static_cast<char>(mix(i)); }
        CHECK(Encoding().decode(Encoding().encode(bytes, "text")) == bytes);
        std::string alone;
        for (const char byte : bytes) {
            alone += encoding.decode(std::array{encoding.of_byte(static_cast<unsigned char>(byte))});
        }
        CHECK(alone == bytes);
    }

    TEST_CASE("a word of a megabyte is merged in seconds, and as one pair after the other is in all its places") {
        std::istringstream merges("a a\na b\naa aa\nb a\naa ab\naaaa aa\nb b\nba aaaa\n");
        const Encoding encoding(merges, "merges");
        // Made by hand: the first merge of the file that is there, everywhere from the left, until there is none.
        const std::vector<std::array<std::string, 2>> by_hand{{"a", "a"}, {"a", "b"},    {"aa", "aa"},
                                                              {"b", "a"}, {"aa", "ab"},  {"aaaa", "aa"},
                                                              {"b", "b"}, {"ba", "aaaa"}};
        const auto merged_by_hand = [&](const std::string& word) {
            std::vector<std::string> parts;
            for (const char letter : word) { parts.emplace_back(1, letter); }
            for (const auto& [first, second] : by_hand) {
                for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
                    if (parts[i] != first || parts[i + 1] != second) { continue; }
                    parts[i] += second;
                    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
                }
            }
            return parts;
        };
        std::string word;
        for (std::uint64_t i = 0; i < 3000; ++i) { word += mix(i) % 3 == 0 ? 'b' : 'a'; }
        const auto check = [&](const std::string& text) {
            std::vector<std::string> parts;
            for (const Token token : encoding.encode(text, "text")) { parts.push_back(encoding.decode({{token}})); }
            CHECK(parts == merged_by_hand(text));
        };
        check(word);
        for (std::size_t length = 0; length < 40; ++length) { check(std::string(length, 'a')); }
        // All pairs of letters are tokens, and each of their merges has its places in the word.
        const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        std::string lines, longest;
        for (const char first : letters) {
            for (const char second : letters) { lines.append({first, ' ', second, '\n'}); }
        }
        for (std::uint64_t i = 0; i < 1'000'000; ++i) { longest += letters[mix(i) % letters.size()]; }
        std::istringstream all(lines);
        const Encoding pairs(all, "merges");
        const std::clock_t begin = std::clock();
        const std::vector<Token> tokens = pairs.encode(longest, "text");
        CHECK(std::clock() - begin < 5 * CLOCKS_PER_SEC);
        CHECK(pairs.decode(tokens) == longest);
        CHECK(tokens.size() < 0.7 * static_cast<double>(longest.size()));
    }

    TEST_CASE("what is no UTF-8, no file of merges or of another vocabulary is refused by name") {
        const Folder folder;
        const auto message = [](const auto& call) -> std::string {
            try {
                call();
            } catch (const program::InputError& error) { return error.what(); }
            return "no error";
        };
        const auto encoding = [&](const std::string& lines) {
            return message([&] {
                std::istringstream merges(lines);
                static_cast<void>(Encoding(merges, "--encoding 'f'"));
            });
        };
        const std::string has = "--encoding 'f' has ";
        CHECK(encoding("#version: 0.2\na b\nab c\n") == "no error");
        CHECK(encoding("#version: 0.2\r\na b\r\nab c") == "no error");
        CHECK(encoding("a b\r\nab cd\r\n").find(has + "'ab cd' in line 2") == 0);
        CHECK(encoding("# #\n") == "no error");
        CHECK(encoding("a b\nab cd\n") ==
              has + "'ab cd' in line 2: expected two tokens of the lines before, as in GPT-2's merges.txt");
        CHECK(encoding("a b\n\n").find(has + "'' in line 2") == 0);
        CHECK(encoding("a b c\n").find(has + "'a b c' in line 1") == 0);
        CHECK(encoding("a b\nb c\nab c\na bc\n") ==
              has + "'a bc' in line 4: expected a token that no line before has");
        CHECK(encoding("#version: 0.2\n") == "--encoding 'f' is empty: expected lines of two tokens");
        CHECK(encoding("{\"a\": 1}\n").find(has + "'{\"a\": 1}' in line 1") == 0);
        CHECK(encoding(std::string(1'000'000, 'x')).find(has + "'" + std::string(60, 'x') + "' in line 1") == 0);
        std::string many;
        const auto name = [](std::size_t i) { return std::string(1, static_cast<char>('!' + i)); };
        for (std::size_t i = 0; i < 93; ++i) {
            for (std::size_t j = 0; j < 93; ++j) { many += name(i) + " " + name(j) + "\n"; }
        }
        const std::string pairs = many;
        for (std::size_t k = 0; many.size() < 700'000 && k < 93; ++k) {
            for (std::size_t i = 0; i < 93; ++i) {
                for (std::size_t j = 0; j < 93; ++j) { many += name(i) + name(j) + " " + name(k) + "\n"; }
            }
        }
        CHECK(encoding(many).find("in line 65280: expected at most 65536 tokens") != std::string::npos);

        Options options;
        options.model.sequence = 2;
        options.encoding = folder.file("merges");
        CHECK(message([&] { read_text(options); }).find("--encoding '" + options.encoding + "': expected a file") ==
              0);
        std::ofstream(options.encoding) << "a b\nab c\n";
        CHECK(message([&] { read_text(options); }) ==
              "--encoding '" + options.encoding + "' has 259 tokens: expected --vocabulary 259, not 256");
        options.model.vocabulary = 259;
        options.text = folder.file("text");
        const auto read = [&](const std::string& text) {
            std::ofstream(options.text, std::ios::binary) << text;
            return message([&] { read_text(options); });
        };
        CHECK(read("abcabd<|endoftext|>") == "no error");
        const std::vector<Token> expected{257, 256, 67, 258};
        CHECK(read_text(options).tokens == expected);
        const std::string of_file = "--text '" + options.text + "' has ";
        for (const std::string wrong :
             {"\x80", "\xc3", "\xc3(", "\xe2\x82", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf0\x80\x80\x80",
              "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xff"}) {
            const std::string what = std::to_string(static_cast<unsigned char>(wrong[0])) +
                                     " at 5, where no character begins: expected UTF-8 with --encoding";
            CHECK(read("abc\xc3\xa4" + wrong) == of_file + "byte " + what);
            CHECK(read("abc\xc3\xa4" + wrong + " and more") == of_file + "byte " + what);
            CHECK(read("abc\xc3\xa4" + wrong + "<|endoftext|>abc") == of_file + "byte " + what);
        }
        CHECK(read("abc") == of_file + "1 tokens: expected at least 3, one more than --sequence");
    }
}

}  // namespace encoding_test
