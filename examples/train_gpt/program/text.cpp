// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "../../common/input_error.hpp"

namespace train_gpt {

namespace {

namespace fs = std::filesystem;

void append_file(const fs::path& path, std::vector<Token>& tokens) {
    std::ifstream file(path, std::ios::binary);
    for (std::istreambuf_iterator<char> at(file), end; at != end; ++at) {
        tokens.push_back(static_cast<unsigned char>(*at));
    }
}

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

void check_text(const Text& text, const ModelConfig& model) {
    if (text.tokens.size() < model.sequence + 1) {
        throw program::InputError("--text '" + text.source + "' has " + std::to_string(text.tokens.size()) +
                                  " bytes: expected at least " + std::to_string(model.sequence + 1) +
                                  ", one more than --sequence");
    }
    const auto beyond =
        std::find_if(text.tokens.begin(), text.tokens.end(), [&](Token token) { return token >= model.vocabulary; });
    if (beyond != text.tokens.end()) {
        throw program::InputError("--text '" + text.source + "' has " + std::to_string(*beyond) + " at " +
                                  std::to_string(beyond - text.tokens.begin()) + ": expected tokens below " +
                                  "--vocabulary " + std::to_string(model.vocabulary));
    }
}

}  // namespace

Text read_text(const std::string& file, const ModelConfig& model) {
    Text text;
    if (file.empty()) {
        const auto files = repository_files(TRAIN_GPT_REPOSITORY);
        if (files.empty()) {
            throw program::InputError(
                std::string("no --text given, and the repository's headers are no longer in '") +
                TRAIN_GPT_REPOSITORY + "': expected --text FILE");
        }
        for (const auto& path : files) { append_file(path, text.tokens); }
        text.source = std::to_string(files.size()) + " headers and pages of this repository";
    } else {
        std::error_code ignored;
        if (fs::is_directory(file, ignored)) { throw program::bad_flag("--text", file, "a file, this is a folder"); }
        // Another one may have no end, or make the reader wait for a writer.
        if (fs::exists(file, ignored) && !fs::is_regular_file(file, ignored)) {
            throw program::bad_flag("--text", file, "a regular file");
        }
        if (!std::ifstream(file)) {
            throw program::bad_flag("--text", file,
                                    std::string("a file that can be read (") + std::strerror(errno) + ")");
        }
        append_file(file, text.tokens);
        text.source = file;
    }
    check_text(text, model);
    return text;
}

}  // namespace train_gpt
