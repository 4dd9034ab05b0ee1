// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "../../common/input_file.hpp"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

/// Headers and pages below the repository's root, by name so that the order is the same everywhere.
std::vector<fs::path> repository_files(const fs::path& root) {
    std::vector<fs::path> files;
    const auto collect = [&](const fs::path& folder, const std::string& ending) {
        std::error_code missing;
        for (fs::recursive_directory_iterator at(folder, missing), end; !missing && at != end; ++at) {
            if (at->is_regular_file() && at->path().extension() == ending) { files.push_back(at->path()); }
        }
    };
    collect(root / "include", ".hpp");
    collect(root / "docs", ".md");
    if (fs::is_regular_file(root / "README.md")) { files.push_back(root / "README.md"); }
    std::sort(files.begin(), files.end());
    return files;
}

/// Tokens as llm.c writes them: 256 numbers of 32 bits, the first three a mark, a version and how many tokens follow,
/// of 16 bits each.
std::vector<Token> tokens_of(const std::string& path) {
    std::ifstream file = program::open_file("--tokens", path);
    const auto read = [&](auto& numbers) {
        const auto bytes = static_cast<std::streamsize>(numbers.size() * sizeof numbers[0]);
        file.read(reinterpret_cast<char*>(numbers.data()), bytes);
        return file.gcount() == bytes;
    };
    std::array<std::uint32_t, 256> header{};
    if (!read(header)) { throw program::bad_flag("--tokens", path, "a header of 1024 bytes, as llm.c writes it"); }
    const auto require = [&](const char* what, std::uint32_t given, std::uint32_t expected) {
        program::require(given == expected, "--tokens '", path, "' has ", what, " ", given, ": expected ", expected,
                         ", as llm.c writes it for GPT-2");
    };
    require("the mark", header[0], 20'240'520);
    require("version", header[1], 1);
    const std::uint64_t bytes = sizeof header + std::uint64_t{header[2]} * sizeof(Token);
    const std::uint64_t found = fs::file_size(path);
    program::require(found == bytes, "--tokens '", path, "' has ", found, " bytes: expected ", bytes, " for the ",
                     header[2], " tokens that its header counts");
    std::vector<Token> tokens(header[2]);
    if (!read(tokens)) { throw program::bad_flag("--tokens", path, "a file that can be read to its end"); }
    return tokens;
}

}  // namespace

Text read_text(const Options& options) {
    Text text;
    if (!options.encoding.empty()) {
        std::ifstream merges = program::open_file("--encoding", options.encoding);
        const std::string given = "--encoding '" + options.encoding + "'";
        text.encoding = Encoding(merges, given);
        const std::size_t size = text.encoding.size();
        program::require(size == options.model.vocabulary, given, " has ", size, " tokens: expected --vocabulary ",
                         size, ", not ", options.model.vocabulary);
    }
    std::string given = options.tokens.empty() ? "--text" : "--tokens";
    std::string bytes;
    if (!options.tokens.empty()) {
        text.tokens = tokens_of(options.tokens);
        text.source = options.tokens;
    } else if (!options.text.empty()) {
        bytes = program::bytes_of(program::open_file("--text", options.text));
        text.source = options.text;
    } else {
        const auto files = repository_files(TRAIN_GPT_REPOSITORY);
        program::require(!files.empty(), "no --text given, and the repository's headers are no longer in '",
                         TRAIN_GPT_REPOSITORY, "': expected --text FILE");
        for (const auto& path : files) { bytes += program::bytes_of(std::ifstream(path, std::ios::binary)); }
        text.source = std::to_string(files.size()) + " headers and pages of this repository";
    }
    given += " '" + text.source + "'";
    if (options.tokens.empty()) { text.tokens = text.encoding.encode(bytes, given); }
    given += " has ";
    const ModelConfig& model = options.model;
    program::require(text.tokens.size() > model.sequence, given, text.tokens.size(), " ", options.unit(),
                     ": expected at least ", model.sequence + 1, ", one more than --sequence");
    const auto beyond =
        std::find_if(text.tokens.begin(), text.tokens.end(), [&](Token token) { return token >= model.vocabulary; });
    if (beyond != text.tokens.end()) {
        throw program::InputError(given, *beyond, " at ", beyond - text.tokens.begin(), ": expected tokens below ",
                                  "--vocabulary ", model.vocabulary);
    }
    return text;
}

}  // namespace train_gpt
