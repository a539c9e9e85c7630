/* What the users of the load edit and compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int table[256];

int compute_step_0(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 3 + table[(unsigned char)text[i]] - 0;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_1(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 5 + table[(unsigned char)text[i]] - 1;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_2(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 7 + table[(unsigned char)text[i]] - 2;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_3(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 9 + table[(unsigned char)text[i]] - 3;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_4(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 11 + table[(unsigned char)text[i]] - 4;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_5(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 13 + table[(unsigned char)text[i]] - 5;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_6(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 15 + table[(unsigned char)text[i]] - 6;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_7(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 17 + table[(unsigned char)text[i]] - 7;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_8(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 19 + table[(unsigned char)text[i]] - 8;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_9(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 21 + table[(unsigned char)text[i]] - 9;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_10(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 23 + table[(unsigned char)text[i]] - 10;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_11(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 25 + table[(unsigned char)text[i]] - 11;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_12(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 27 + table[(unsigned char)text[i]] - 12;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_13(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 29 + table[(unsigned char)text[i]] - 13;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_14(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 31 + table[(unsigned char)text[i]] - 14;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_15(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 33 + table[(unsigned char)text[i]] - 15;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_16(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 35 + table[(unsigned char)text[i]] - 16;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_17(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 37 + table[(unsigned char)text[i]] - 17;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_18(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 39 + table[(unsigned char)text[i]] - 18;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_19(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 41 + table[(unsigned char)text[i]] - 19;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_20(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 43 + table[(unsigned char)text[i]] - 20;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_21(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 45 + table[(unsigned char)text[i]] - 21;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_22(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 47 + table[(unsigned char)text[i]] - 22;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_23(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 49 + table[(unsigned char)text[i]] - 23;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_24(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 51 + table[(unsigned char)text[i]] - 24;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_25(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 53 + table[(unsigned char)text[i]] - 25;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_26(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 55 + table[(unsigned char)text[i]] - 26;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_27(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 57 + table[(unsigned char)text[i]] - 27;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_28(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 59 + table[(unsigned char)text[i]] - 28;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_29(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 61 + table[(unsigned char)text[i]] - 29;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_30(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 63 + table[(unsigned char)text[i]] - 30;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_31(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 65 + table[(unsigned char)text[i]] - 31;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_32(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 67 + table[(unsigned char)text[i]] - 32;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_33(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 69 + table[(unsigned char)text[i]] - 33;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_34(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 71 + table[(unsigned char)text[i]] - 34;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_35(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 73 + table[(unsigned char)text[i]] - 35;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_36(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 75 + table[(unsigned char)text[i]] - 36;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_37(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 77 + table[(unsigned char)text[i]] - 37;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_38(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 79 + table[(unsigned char)text[i]] - 38;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}

int compute_step_39(int x, const char *text)
{
	int sum = x + 1, length = (int)strlen(text);
	for (int i = 0; i < length; i++)
		sum = sum * 81 + table[(unsigned char)text[i]] - 39;
	if (sum % 7 == 0)
		printf("%d %s\n", sum, text);
	return sum;
}
