// SPDX-License-Identifier: Apache-2.0
// What the trainers read: a file's bytes. No trainer changes a line of it.
#pragma once

#include <cstdio>
#include <cstdlib>

struct Text {
    unsigned char* bytes;
    long size;
};

inline Text read_text(const char* path) {
    FILE* file = std::fopen(path, "rb");
    Text text = {static_cast<unsigned char*>(std::malloc(1 << 20)), 0};
    if (file != nullptr) {
        text.size = static_cast<long>(std::fread(text.bytes, 1, 1 << 20, file));
        std::fclose(file);
    }
    if (text.size < 1000) {
        std::fprintf(stderr, "'%s' cannot be read, or has less than 1,000 bytes\n", path);
        std::exit(1);
    }
    return text;
}

// Rows [first, first + B) of step `step`, of a batch of `all` rows: T bytes each, and the bytes that follow them.
inline void load_batch(const Text* text, int* inputs, int* targets, int step, int first, int B, int all, int T) {
    for (int b = 0; b < B; ++b) {
        const long begin = (static_cast<long>(step) * all + first + b) * 977 % (text->size - T - 1);
        for (int t = 0; t < T; ++t) {
            inputs[b * T + t] = text->bytes[begin + t];
            targets[b * T + t] = text->bytes[begin + t + 1];
        }
    }
}
